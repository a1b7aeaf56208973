package nodes

import (
	"bufio"
	_ "embed" // of the program's source
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Libc is a C library with a resolver.
type Libc string

// The C libraries.
const (
	Glibc Libc = "glibc"
	Musl  Libc = "musl"
)

//go:embed testdata/lookup.c
var source []byte

// BuildLookup builds the programs that look names up, into a directory.
func BuildLookup(dir string) error {
	file := filepath.Join(dir, "lookup.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return err
	}
	for libc, compiler := range map[Libc][]string{Glibc: {"gcc", "-pthread"}, Musl: {"musl-gcc", "-static"}} {
		args := append(compiler[1:], "-O2", "-o", filepath.Join(dir, string(libc)), file)
		if out, err := exec.Command(compiler[0], args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s (Debian: apt-get install gcc musl-tools): %w\n%s", compiler[0], err, out)
		}
	}
	return nil
}

// Want is a name and the addresses that a lookup must return; none if it does not
// exist.
type Want struct {
	Name  string
	Addrs []netip.Addr
}

// right reports whether these are its addresses, in any order.
func (w Want) right(addrs []netip.Addr) bool {
	return slices.Equal(sorted(w.Addrs), sorted(addrs))
}

func sorted(addrs []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
}

// Lookup is a call of getaddrinfo that returned.
type Lookup struct {
	Name   string
	Result Result
	Took   time.Duration
}

// Result is the result of a lookup or query. The zero Result means no answer.
type Result int

// The Results.
const (
	Lost   Result = iota // no answer in time
	Failed               // the answer is that there is none, so SERVFAIL or the like
	Wrong                // another answer than the right one
	Right
)

// Lookups is a program in a Pod that looks names up with getaddrinfo.
type Lookups struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	wants map[string]Want
	done  chan struct{}
	all   []Lookup
	err   error
}

// StartLookups starts the program of a C library, which is in dir, in a Pod.
func (w *World) StartLookups(pod int, dir string, libc Libc) (*Lookups, error) {
	l := &Lookups{
		cmd:   exec.Command(filepath.Join(dir, string(libc))),
		wants: make(map[string]Want),
		done:  make(chan struct{}),
	}
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.Pods[pod].start(l.cmd); err != nil {
		return nil, err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	go l.collect(lines)
	return l, nil
}

func (l *Lookups) collect(lines <-chan string) {
	defer close(l.done)
	var texts []string
	for line := range lines {
		texts = append(texts, line)
	}
	if l.err = l.cmd.Wait(); l.err != nil {
		return
	}
	for _, text := range texts {
		lookup, err := l.parse(text)
		if err != nil {
			l.err = err
			return
		}
		l.all = append(l.all, lookup)
	}
}

// parse reads a line of the program: name, outcome, microseconds, addresses.
func (l *Lookups) parse(text string) (Lookup, error) {
	fields := strings.Fields(text)
	if len(fields) < 3 {
		return Lookup{}, fmt.Errorf("lookup: %q", text)
	}
	took, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return Lookup{}, fmt.Errorf("lookup: %w", err)
	}
	var addrs []netip.Addr
	for _, field := range fields[3:] {
		a, err := netip.ParseAddr(field)
		if err != nil {
			return Lookup{}, fmt.Errorf("lookup: %w", err)
		}
		addrs = append(addrs, a)
	}
	lookup := Lookup{Name: fields[0], Result: Wrong, Took: time.Duration(took) * time.Microsecond}
	want := l.wants[fields[0]]
	switch fields[1] {
	case "again", "failed":
		lookup.Result = Failed
	case "found", "none":
		if want.right(addrs) {
			lookup.Result = Right
		}
	}
	return lookup, nil
}

// LookUp starts a lookup, concurrent with those that have not returned.
func (l *Lookups) LookUp(want Want) error {
	l.wants[want.Name] = want
	_, err := fmt.Fprintln(l.in, want.Name)
	return err
}

// End waits until all lookups have returned, and returns them in that order.
func (l *Lookups) End() ([]Lookup, error) {
	if err := l.in.Close(); err != nil {
		return nil, err
	}
	<-l.done
	return l.all, l.err
}
