package filter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/support/follow"
)

// New returns a Filter with its files read. A file that does not exist counts
// as empty until it appears. New fails if a file cannot be read or if a
// configured line is invalid; invalid lines in files are skipped and logged by
// Run.
func New(cfg Config) (*Filter, error) { return Renew(nil, cfg) }

// Renew is New for a Filter that replaces before, which may be nil. Files that before has
// read keep their content; Run reads them when they have changed.
func Renew(before *Filter, cfg Config) (*Filter, error) {
	r := &Filter{cfg: cfg, exact: make(map[string]string), suffix: make(map[string]string)}
	for _, w := range cfg.Rewrites {
		table := r.suffix
		if w.Exact {
			table = r.exact
		}
		table[w.From.WireLabels()] = w.To.WireLabels()
	}
	r.blocked[0] = dnswire.NewRRset(dnswire.TypeA, cfg.Block.TTL, netip.IPv4Unspecified().AsSlice())
	r.blocked[1] = dnswire.NewRRset(dnswire.TypeAAAA, cfg.Block.TTL, netip.IPv6Unspecified().AsSlice())
	var err error
	if r.lines, err = parseLines(cfg.Hosts.Lines); err != nil {
		return nil, err
	}
	lists := make(map[source]*list)
	var unread []source
	for _, s := range r.sources() {
		if before == nil || before.tables.Load().lists[s] == nil {
			unread = append(unread, s)
			continue
		}
		lists[s] = before.tables.Load().lists[s]
	}
	if err := readAll(unread, lists); err != nil {
		return nil, err
	}
	r.tables.Store(r.build(lists))
	return r, nil
}

// CheckLines returns the first error in lines of hosts(5), or nil.
func CheckLines(lines []string) error {
	_, err := parseLines(lines)
	return err
}

// parseLines parses lines of hosts(5) and fails on the first invalid one.
func parseLines(lines []string) (*list, error) {
	l, err := parse(source{kind: hostsList}, strings.NewReader(strings.Join(lines, "\n")))
	switch {
	case err != nil:
		return nil, err
	case len(l.problems) > 0:
		return nil, l.problems[0]
	}
	return l, nil
}

// Empty reports whether the configuration filters nothing.
func (c *Config) Empty() bool {
	return len(c.Access)+len(c.Rewrites)+len(c.Suppress)+
		len(c.Block.Names)+len(c.Block.Files)+len(c.Hosts.Lines)+len(c.Hosts.Files) == 0
}

// readAll reads sources into lists, at once, so that files that block cost one deadline.
// It leaves out files that do not exist.
func readAll(sources []source, lists map[source]*list) error {
	read, errs := make([]*list, len(sources)), make([]error, len(sources))
	var reads sync.WaitGroup
	for i, s := range sources {
		reads.Go(func() {
			var file *follow.Content
			if file, errs[i] = follow.Read(context.Background(), s.file); errs[i] == nil {
				read[i], errs[i] = parseFile(s, file)
			}
		})
	}
	reads.Wait()
	for i, s := range sources {
		switch {
		case errs[i] == nil:
			lists[s] = read[i]
		case !errors.Is(errs[i], fs.ErrNotExist):
			return errs[i]
		}
	}
	return nil
}

// Run reloads files when they change, until ctx is done. It logs the invalid
// lines of each file that it loads and, once, the files that are missing at the
// start. It returns ctx's error.
func (r *Filter) Run(ctx context.Context, log *slog.Logger) error {
	var followers sync.WaitGroup
	for _, s := range r.sources() {
		l := r.tables.Load().lists[s]
		if l != nil {
			logProblems(log, l.problems)
		} else {
			log.Warn("filter file does not exist; it is read when it appears", "file", s.file)
		}
		followers.Go(func() { _ = r.follower(s, l, log).Run(ctx) }) // ends with ctx
	}
	<-ctx.Done()
	followers.Wait()
	return ctx.Err()
}

// follower returns what follows a source, of which l is known; nil is nothing.
func (r *Filter) follower(s source, l *list, log *slog.Logger) *follow.Follower {
	f := &follow.Follower{Path: s.file}
	if l != nil {
		f.InUse = l.version
	}
	f.Use = func(file *follow.Content) error {
		l, err := parseFile(s, file)
		if err != nil {
			return err
		}
		r.changing.Lock()
		defer r.changing.Unlock()
		lists := maps.Clone(r.tables.Load().lists)
		lists[s] = l
		t := r.build(lists)
		r.tables.Store(t)
		logProblems(log, l.problems)
		log.Info("filter files reloaded", "blocked", len(t.blocked), "hosts", len(t.hosts))
		return nil
	}
	f.Report = func(err error) {
		isKnown := r.tables.Load().lists[s] != nil
		if err != nil && (isKnown || !errors.Is(err, fs.ErrNotExist)) {
			log.Error("cannot read filter file; its previous content stays in use", "err", err)
		}
	}
	return f
}

func logProblems(log *slog.Logger, problems []*problem) {
	const most = 10
	for i, p := range problems {
		if i == most {
			log.Warn("more invalid lines ignored", "lines", len(problems)-most)
			return
		}
		log.Warn("invalid line ignored", "err", p)
	}
}

// source is a file and the kind of list that it holds.
type source struct {
	kind kind
	file string
}

// kind is the format of a list.
type kind uint8

const (
	blockList kind = iota
	hostsList
)

func (r *Filter) sources() (all []source) {
	for _, file := range r.cfg.Block.Files {
		all = append(all, source{blockList, file})
	}
	for _, file := range r.cfg.Hosts.Files {
		all = append(all, source{hostsList, file})
	}
	return all
}

// list is the parsed content of a source. It is immutable.
type list struct {
	version  follow.Version
	blocked  []string // names in wire form
	hosts    []hostEntry
	problems []*problem
}

// hostEntry is one name of a hosts(5) line and its address.
type hostEntry struct {
	addr netip.Addr
	name dnsname.Name
}

// problem is an invalid line. Its file is empty if the line is configured.
type problem struct {
	file string
	line int // from 1
	err  error
}

func (p *problem) Unwrap() error { return p.err }

func (p *problem) Error() string {
	if p.file == "" {
		return fmt.Sprintf("line %d: %s", p.line, p.err)
	}
	return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.err)
}

// parseFile parses a source.
func parseFile(s source, file *follow.Content) (*list, error) {
	l, err := parse(s, bytes.NewReader(file.Text))
	if err != nil {
		return nil, err
	}
	l.version = file.Version
	return l, nil
}

// maxLine is the longest line accepted, in octets. A hosts file may block many
// names with one address on one line.
const maxLine = 1 << 20

// parse parses all lines of a list. It fails if it cannot read to the end,
// because half a list is worse than the previous one.
func parse(s source, from io.Reader) (*list, error) {
	l := new(list)
	add := l.addHost
	if s.kind == blockList {
		add = l.addBlocked
	}
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
			l.problems = append(l.problems, &problem{s.file, n, err})
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &problem{s.file, n, err}
	} else if err != nil {
		return nil, err
	}
	return l, nil
}

// addBlocked adds a line that holds one name or, as in hosts files made for
// blocking, an address and names.
func (l *list) addBlocked(words []string) error {
	if _, err := netip.ParseAddr(words[0]); err == nil {
		words = words[1:]
	}
	if len(words) == 0 {
		return errors.New("an address without a name")
	}
	for _, w := range words {
		if strings.HasPrefix(w, "*.") {
			return fmt.Errorf("%s: a name blocks all names below it; write it without the asterisk", w)
		}
		name, err := dnsname.Parse(w)
		if err != nil {
			return err
		}
		if name.IsRoot() {
			return errors.New("the root: everything would be blocked")
		}
		l.blocked = append(l.blocked, name.WireLabels())
	}
	return nil
}

// addHost adds a line that holds an address and names.
func (l *list) addHost(words []string) error {
	addr, err := netip.ParseAddr(words[0])
	switch {
	case err != nil || addr.Zone() != "":
		return fmt.Errorf("%q is not an address", words[0])
	case len(words) == 1:
		return errors.New("an address without a name")
	}
	addr = addr.Unmap()
	for _, w := range words[1:] {
		name, err := dnsname.Parse(w)
		if err != nil {
			return err
		}
		l.hosts = append(l.hosts, hostEntry{addr, name})
	}
	return nil
}

// build merges the configuration and the lists into lookup tables.
func (r *Filter) build(lists map[source]*list) *tables {
	t := &tables{blocked: make(map[string]struct{}), lists: lists}
	for _, name := range r.cfg.Block.Names {
		t.blocked[name.WireLabels()] = struct{}{}
	}
	hosts := slices.Clone(r.lines.hosts)
	for _, s := range r.sources() {
		if l := lists[s]; l != nil {
			for _, name := range l.blocked {
				t.blocked[name] = struct{}{}
			}
			hosts = append(hosts, l.hosts...)
		}
	}
	t.hosts = compileHosts(hosts, r.cfg.Hosts.TTL)
	return t
}

// compileHosts makes the A and AAAA RRsets of the names and the PTR RRsets of
// the addresses.
func compileHosts(hosts []hostEntry, ttl uint32) map[string]host {
	addrsOf, namesOf := make(map[string][]netip.Addr), make(map[netip.Addr][]dnsname.Name)
	for _, h := range hosts {
		key := h.name.WireLabels()
		if !slices.Contains(addrsOf[key], h.addr) {
			addrsOf[key] = append(addrsOf[key], h.addr)
			namesOf[h.addr] = append(namesOf[h.addr], h.name)
		}
	}
	all := make(map[string]host)
	for name, addrs := range addrsOf {
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
	for _, addr := range slices.SortedFunc(maps.Keys(namesOf), netip.Addr.Compare) {
		var targets [][]byte
		for _, name := range namesOf[addr] {
			targets = append(targets, name.AppendWire(nil))
		}
		key := dnsname.Reverse(addr).WireLabels()
		h := all[key]
		h.ptr = dnswire.NewRRset(dnswire.TypePTR, ttl, targets...)
		all[key] = h
	}
	return all
}
