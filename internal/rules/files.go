package rules

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
)

// New makes Rules and reads their files. A file that is not there is taken to be
// empty until it is. New fails when one can't be read or a configured line is not
// one; bad lines of files are passed over, see Run.
func New(cfg Config) (*Rules, error) {
	r := &Rules{cfg: cfg, exact: make(map[string]string), suffix: make(map[string]string), found: make(map[string]bool)}
	for _, w := range cfg.Rewrites {
		table := r.suffix
		if w.Exact {
			table = r.exact
		}
		table[w.From.WireLabels()] = w.To.WireLabels()
	}
	r.blocked[0] = dnswire.NewRRset(dnswire.TypeA, cfg.Block.TTL, netip.IPv4Unspecified().AsSlice())
	r.blocked[1] = dnswire.NewRRset(dnswire.TypeAAAA, cfg.Block.TTL, netip.IPv6Unspecified().AsSlice())
	if err := CheckLines(cfg.Hosts.Lines); err != nil {
		return nil, err
	}
	r.version = r.versions()
	t, problems, err := r.read()
	if err != nil {
		return nil, err
	}
	r.problems = problems
	r.tables.Store(t)
	return r, nil
}

// CheckLines tells the first mistake in lines of hosts(5).
func CheckLines(lines []string) error {
	b := newBuilder()
	if err := b.readLines("", strings.NewReader(strings.Join(lines, "\n")), b.addHost); err != nil {
		return err
	}
	if len(b.problems) > 0 {
		return b.problems[0]
	}
	return nil
}

// Empty tells whether a Config says nothing.
func (c *Config) Empty() bool {
	return len(c.Access)+len(c.Rewrites)+len(c.Block.Names)+len(c.Block.Files)+len(c.Hosts.Lines)+len(c.Hosts.Files) == 0
}

// lookTime is how often files are looked at.
const lookTime = time.Second

// Run reads the files again when they change, until ctx is done, and logs lines
// that are passed over, and once which files were never there.
func (r *Rules) Run(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	logProblems(log, r.problems)
	for _, name := range r.files() {
		if !r.found[name] {
			log.Warn("a file of rules is not there; it is read when it is", "file", name)
		}
	}
	var failed []time.Time // the versions that could not be read
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		now := r.versions()
		if slices.Equal(now, r.version) {
			continue
		}
		t, problems, err := r.read()
		switch {
		case err == nil:
			r.version, r.problems = now, problems
			r.tables.Store(t)
			logProblems(log, problems)
			log.Info("rules read again", "blocked", len(t.blocked), "hosts", len(t.hosts))
		case !slices.Equal(now, failed):
			failed = now
			log.Error("rules can't be read; those before stay", "err", err)
		}
	}
}

func logProblems(log *slog.Logger, problems []*problem) {
	const most = 10
	for i, p := range problems {
		if i == most {
			log.Warn("more lines passed over", "lines", len(problems)-most)
			return
		}
		log.Warn("line passed over", "err", p)
	}
}

func (r *Rules) files() []string { return slices.Concat(r.cfg.Block.Files, r.cfg.Hosts.Files) }

// versions tell when each file was changed; zero for one that can't be seen.
func (r *Rules) versions() (all []time.Time) {
	for _, file := range r.files() {
		var changed time.Time
		if info, err := os.Stat(file); err == nil {
			changed = info.ModTime()
		}
		all = append(all, changed)
	}
	return all
}

// problem is a line that can't be used; of the configuration where there is no
// file.
type problem struct {
	file string
	line int // from 1
	err  error
}

func (p *problem) Error() string {
	if p.file == "" {
		return fmt.Sprintf("line %d: %s", p.line, p.err)
	}
	return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.err)
}

// read reads everything anew.
func (r *Rules) read() (*tables, []*problem, error) {
	b := newBuilder()
	for _, name := range r.cfg.Block.Names {
		b.blocked[name.WireLabels()] = struct{}{}
	}
	if err := r.readFiles(b, r.cfg.Block.Files, b.addBlocked); err != nil {
		return nil, nil, err
	}
	if err := b.readLines("", strings.NewReader(strings.Join(r.cfg.Hosts.Lines, "\n")), b.addHost); err != nil {
		return nil, nil, err
	}
	if err := r.readFiles(b, r.cfg.Hosts.Files, b.addHost); err != nil {
		return nil, nil, err
	}
	return &tables{b.blocked, b.hosts(r.cfg.Hosts.TTL)}, b.problems, nil
}

// readFiles has add take the words of each line. A file that is gone is an error:
// who replaces it may be about to put the new one there.
func (r *Rules) readFiles(b *builder, files []string, add func(words []string) error) error {
	for _, name := range files {
		file, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) && !r.found[name] {
			continue
		}
		if err != nil {
			return err
		}
		err = b.readLines(name, file, add)
		file.Close()
		if err != nil {
			return err
		}
		r.found[name] = true
	}
	return nil
}

// builder puts tables together.
type builder struct {
	blocked  map[string]struct{}
	addrs    map[string][]netip.Addr       // of names
	names    map[netip.Addr][]dnsname.Name // of addresses
	problems []*problem
}

func newBuilder() *builder {
	return &builder{blocked: make(map[string]struct{}), addrs: make(map[string][]netip.Addr), names: make(map[netip.Addr][]dnsname.Name)}
}

// maxLine is how long a line may be, in octets: that of an address that blocks
// many names.
const maxLine = 1 << 20

// readLines adds the words of each line that has any. It fails when it can't read
// to the end: half of a list is worse than the one before.
func (b *builder) readLines(file string, from io.Reader, add func(words []string) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if err := add(words); err != nil {
			b.problems = append(b.problems, &problem{file, n, err})
		}
	}
	if err := lines.Err(); err != nil {
		return &problem{file, n, err}
	}
	return nil
}

// addBlocked takes a line of one name or, as hosts files that block names have
// it, of an address and names.
func (b *builder) addBlocked(words []string) error {
	if _, err := netip.ParseAddr(words[0]); err == nil {
		words = words[1:]
	}
	if len(words) == 0 {
		return fmt.Errorf("an address without a name")
	}
	for _, w := range words {
		name, err := dnsname.Parse(w)
		if err != nil {
			return err
		}
		if name.IsRoot() {
			return fmt.Errorf("the root: everything would be blocked")
		}
		b.blocked[name.WireLabels()] = struct{}{}
	}
	return nil
}

// addHost takes a line of an address and names.
func (b *builder) addHost(words []string) error {
	addr, err := netip.ParseAddr(words[0])
	switch {
	case err != nil || addr.Zone() != "":
		return fmt.Errorf("%q is not an address", words[0])
	case len(words) == 1:
		return fmt.Errorf("an address without a name")
	}
	addr = addr.Unmap()
	for _, w := range words[1:] {
		name, err := dnsname.Parse(w)
		if err != nil {
			return err
		}
		key := name.WireLabels()
		if !slices.Contains(b.addrs[key], addr) {
			b.addrs[key] = append(b.addrs[key], addr)
			b.names[addr] = append(b.names[addr], name)
		}
	}
	return nil
}

// hosts makes the RRsets of names and of addresses.
func (b *builder) hosts(ttl uint32) map[string]host {
	all := make(map[string]host)
	for name, addrs := range b.addrs {
		var v4, v6 [][]byte
		for _, a := range addrs {
			if a.Is4() {
				v4 = append(v4, a.AsSlice())
			} else {
				v6 = append(v6, a.AsSlice())
			}
		}
		all[name] = host{a: dnswire.NewRRset(dnswire.TypeA, ttl, v4...), aaaa: dnswire.NewRRset(dnswire.TypeAAAA, ttl, v6...)}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(b.names), netip.Addr.Compare) {
		var targets [][]byte
		for _, name := range b.names[addr] {
			targets = append(targets, name.AppendWire(nil))
		}
		key := dnsname.Reverse(addr).WireLabels()
		h := all[key]
		h.ptr = dnswire.NewRRset(dnswire.TypePTR, ttl, targets...)
		all[key] = h
	}
	return all
}
