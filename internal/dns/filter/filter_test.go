package filter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
)

func name(s string) dnsname.Name { return dnsname.MustParse(s) }

func wire(s string) []byte { return []byte(name(s).WireLabels()) }

func newFilter(t *testing.T, cfg filter.Config) *filter.Filter {
	t.Helper()
	r, err := filter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRewrite(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 63)+".", 3)
	r := newFilter(t, filter.Config{Rewrites: []filter.Rewrite{
		{From: name("old.example."), To: name("new.example.")},
		{From: name("deep.old.example."), To: name("deeper.example.")},
		{From: name("one.example."), To: name("two.example."), Exact: true},
		{From: name("grow."), To: name(long)},
	}})
	for from, to := range map[string]string{
		"old.example.": "new.example.", "www.old.example.": "www.new.example.", "a.deep.old.example.": "a.deeper.example.",
		"one.example.": "two.example.", "www.one.example.": "www.one.example.", "fold.example.": "fold.example.", ".": ".",
		"x.grow.": "x." + long, strings.Repeat("b", 62) + ".grow.": strings.Repeat("b", 62) + ".grow.",
	} {
		var room [dnsname.MaxWire]byte
		got, renamed := r.Rewrite(wire(from), room[:])
		if string(got) != string(wire(to)) || renamed != (from != to) {
			t.Errorf("Rewrite(%s) = %q, %v, want %s", from, got, renamed, to)
		}
	}
	root := newFilter(t, filter.Config{Rewrites: []filter.Rewrite{{From: dnsname.Root, To: name("all.example.")}}})
	var room [dnsname.MaxWire]byte
	if got, _ := root.Rewrite(wire("www.example."), room[:]); string(got) != string(wire("www.example.all.example.")) {
		t.Errorf("below the root: %q", got)
	}
}

func TestAccess(t *testing.T) {
	r := newFilter(t, filter.Config{Access: []filter.AccessRule{
		{Action: filter.Drop, Names: []dnsname.Name{name("bad.example.")}},
		{Action: filter.Allow, Clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}},
		{Action: filter.Refuse, Names: []dnsname.Name{name("corp.example.")}},
	}})
	for query, want := range map[string]filter.Action{
		"10.0.0.1 www.example.": filter.Allow, "10.0.0.1 www.corp.example.": filter.Allow, "10.0.0.1 bad.example.": filter.Drop,
		"192.0.2.1 www.example.": filter.Allow, "192.0.2.1 corp.example.": filter.Refuse, "192.0.2.1 www.corp.example.": filter.Refuse,
		"fd00::1 corp.example.": filter.Allow, "2001:db8::1 corp.example.": filter.Refuse, "192.0.2.1 notcorp.example.": filter.Allow,
	} {
		client, asked, _ := strings.Cut(query, " ")
		if got := r.Access(netip.MustParseAddr(client), wire(asked)); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}

func TestFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# comment\n\n 192.0.2.1\ta.example A.Example b.example # more\nfe80::1%eth0 c.example\n::ffff:192.0.2.2 d.example\n2001:db8::1 a.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newFilter(t, filter.Config{Hosts: filter.Hosts{Files: []string{file}, TTL: 60}})
	for query, want := range map[string]string{
		"a.example. A": "192.0.2.1", "a.example. AAAA": "2001:db8::1", "a.example. TXT": "nothing", "a.example. ANY": "192.0.2.1",
		"b.example. A": "192.0.2.1", "c.example. A": "unknown", "d.example. A": "192.0.2.2", "www.a.example. A": "unknown",
		"1.2.0.192.in-addr.arpa. PTR": "a.example. b.example.", "1.2.0.192.in-addr.arpa. A": "nothing",
	} {
		asked, typ, _ := strings.Cut(query, " ")
		kind, err := dnswire.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		set, exists := r.Host(wire(asked), kind)
		records, err := set.Records(name(asked))
		if err != nil {
			t.Fatal(err)
		}
		var data []string
		for _, rec := range records {
			data = append(data, rec.Data)
		}
		got := strings.Join(data, " ")
		switch {
		case !exists:
			got = "unknown"
		case len(records) == 0:
			got = "nothing"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if _, err := filter.New(filter.Config{Block: filter.Blocklist{Files: []string{filepath.Dir(file)}}}); err == nil {
		t.Error("a directory: no error")
	}
	write(t, file, "good.example\n*.bad.example\n")
	r = newFilter(t, filter.Config{Block: filter.Blocklist{Files: []string{file}}})
	for query, want := range map[string]bool{"good.example.": true, "*.bad.example.": false} {
		if _, _, blocked := r.Blocked(wire(query), dnswire.TypeA); blocked != want {
			t.Errorf("%s blocked by a file with *.bad.example: %t, want %t", query, blocked, want)
		}
	}
	if _, err := filter.New(filter.Config{Hosts: filter.Hosts{Lines: []string{"192.0.2.1"}}}); err == nil || err.Error() != "line 1: an address without a name" {
		t.Errorf("a line without name: %v", err)
	}
}

func TestBlocked(t *testing.T) {
	r := newFilter(t, filter.Config{Block: filter.Blocklist{Names: []dnsname.Name{name("ads.example.")}, Zero: true, TTL: 5}})
	for query, want := range map[string]int{"ads.example. A": 1, "x.y.ads.example. AAAA": 1, "ads.example. TXT": 0, "nads.example. A": -1, ". A": -1} {
		asked, typ, _ := strings.Cut(query, " ")
		kind, _ := dnswire.ParseType(typ)
		set, denied, blocked := r.Blocked(wire(asked), kind)
		if got := int(set.Count); denied || blocked != (want >= 0) || blocked && got != want {
			t.Errorf("%s: %d records, blocked: %v, denied: %v", query, got, blocked, denied)
		}
	}
}

// TestRateLimiter checks the burst and the sustained rate, for each prefix.
func TestRateLimiter(t *testing.T) {
	l := filter.NewRateLimiter(filter.RateLimit{PerSecond: 10, Burst: 5, Prefix4: 24, Prefix6: 56, Slip: 3})
	now := time.Now()
	count := func(client string, n int) (sent, cut int) {
		for range n {
			switch l.Count(netip.MustParseAddr(client), now) {
			case filter.Send:
				sent++
			case filter.SendTruncated:
				cut++
			case filter.SendNothing:
			}
		}
		return sent, cut
	}
	for i, c := range []struct {
		after  time.Duration
		client string
		sent   int
	}{
		{0, "192.0.2.1", 5}, {0, "192.0.2.200", 0}, {0, "192.0.3.1", 5}, {0, "2001:db8::1", 5}, {0, "2001:db8:0:ff::1", 0},
		{time.Second, "192.0.2.1", 5}, {200 * time.Millisecond, "192.0.2.1", 2}, {time.Hour, "192.0.2.1", 5},
	} {
		now = now.Add(c.after)
		if sent, cut := count(c.client, 15+c.sent); sent != c.sent || cut < 4 || cut > 6 {
			t.Errorf("%d: %s: %d sent, %d cut; want %d, 5", i, c.client, sent, cut, c.sent)
		}
	}
	if filter.NewRateLimiter(filter.RateLimit{}) != nil {
		t.Error("a Limiter without a limit")
	}
}

// TestAllocations checks that filtering a query allocates nothing.
func TestAllocations(t *testing.T) {
	cfg := filter.Config{
		Access:   []filter.AccessRule{{Action: filter.Refuse, Names: []dnsname.Name{name("corp.example.")}}},
		Rewrites: []filter.Rewrite{{From: name("old.example."), To: name("new.example.")}},
		Block:    filter.Blocklist{Names: []dnsname.Name{name("ads.example.")}},
	}
	for i := range 100 {
		cfg.Hosts.Lines = append(cfg.Hosts.Lines, fmt.Sprintf("192.0.2.%d h%d.example", i+1, i))
	}
	r := newFilter(t, cfg)
	l := filter.NewRateLimiter(filter.RateLimit{PerSecond: 1, Burst: 1, Prefix4: 24})
	asked, client, now := wire("www.old.example."), netip.MustParseAddr("192.0.2.1"), time.Now()
	var room [dnsname.MaxWire]byte
	if n := testing.AllocsPerRun(1000, func() {
		r.Access(client, asked)
		l.Count(client, now)
		renamed, _ := r.Rewrite(asked, room[:])
		r.Blocked(renamed, dnswire.TypeA)
		r.Host(renamed, dnswire.TypeA)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMissingFiles checks that missing files are logged once and read when they
// appear, and that a file that disappears keeps its content.
func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	hosts, blocked := filepath.Join(dir, "hosts"), filepath.Join(dir, "blocked")
	r := newFilter(t, filter.Config{Block: filter.Blocklist{Files: []string{blocked}}, Hosts: filter.Hosts{Files: []string{hosts}, TTL: 60}})
	var log lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx, slog.New(slog.NewTextHandler(&log, nil))) }()
	defer func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	}()
	until := func(what string, is func() bool) {
		t.Helper()
		end, tick := time.After(20*time.Second), time.NewTicker(10*time.Millisecond)
		defer tick.Stop()
		for !is() {
			select {
			case <-tick.C:
			case <-end:
				t.Fatalf("%s: not within 20 s; log:\n%s", what, log.String())
			}
		}
	}
	hasHost := func() bool { _, exists := r.Host(wire("a.example."), dnswire.TypeA); return exists }
	isBlocked := func() bool { _, _, is := r.Blocked(wire("b.example."), dnswire.TypeA); return is }
	until("both are named", func() bool { return strings.Count(log.String(), "level=WARN") == 2 })
	write(t, hosts, "192.0.2.1 a.example\n")
	until("the first one is read", hasHost)
	write(t, blocked, "b.example\n")
	until("the second one is read", isBlocked)
	if err := os.Remove(hosts); err != nil {
		t.Fatal(err)
	}
	until("its end is noticed", func() bool { return strings.Contains(log.String(), "its previous content stays") })
	if !hasHost() || strings.Count(log.String(), "level=WARN") != 2 {
		t.Errorf("what a file said is gone with it: %t; log:\n%s", !hasHost(), log.String())
	}
	write(t, blocked, "c.example\n")
	until("the other one is read again", func() bool { return !isBlocked() })
	if !hasHost() || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("what a file said is gone with another one: %t; log:\n%s", !hasHost(), log.String())
	}
	write(t, hosts, "192.0.2.2 b.example\n")
	until("it is back, and read", func() bool { return !hasHost() })
}

// TestRenew checks that a new Filter keeps the content of a file that
// disappeared, if the file is one of its own.
func TestRenew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	write(t, file, "192.0.2.1 a.example\n")
	both := filter.Config{Block: filter.Blocklist{Files: []string{file}}, Hosts: filter.Hosts{Files: []string{file}}}
	before := newFilter(t, both)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for claim, tt := range map[string]struct {
		cfg           filter.Config
		blocked, host bool
	}{
		"both":      {both, true, true},
		"block":     {filter.Config{Block: both.Block}, true, false},
		"hosts":     {filter.Config{Hosts: both.Hosts}, false, true},
		"no longer": {filter.Config{}, false, false},
	} {
		r, err := filter.Renew(before, tt.cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, _, blocked := r.Blocked(wire("a.example."), dnswire.TypeA)
		_, host := r.Host(wire("a.example."), dnswire.TypeA)
		if blocked != tt.blocked || host != tt.host {
			t.Errorf("%s: blocked: %t, host: %t", claim, blocked, host)
		}
	}
}

// TestWrittenInPlace checks that a list that is cut off while it is overwritten does not
// unblock names, and that a shorter one does, after a while.
func TestWrittenInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "list")
		const whole = "a.example\nb.example\n"
		write(t, file, whole)
		r := newFilter(t, filter.Config{Block: filter.Blocklist{Files: []string{file}}})
		defer follow(t, r)()
		want := func(text string, wait time.Duration, blocked bool) {
			t.Helper()
			write(t, file, text)
			time.Sleep(wait)
			synctest.Wait()
			if _, _, is := r.Blocked(wire("b.example."), dnswire.TypeA); is != blocked {
				t.Errorf("b.example. blocked %s after %q: %t, want %t", wait, text, is, blocked)
			}
		}
		for end := range len(whole) {
			want(whole[:end], 300*time.Millisecond, true)
		}
		want("a.example\n", 4*time.Second, true)
		want("a.example\n", 7*time.Second, false)
		want(whole, 2*time.Second, true)
	})
}

// follow runs r, and returns what ends that.
func follow(t *testing.T, r *filter.Filter) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx, slog.New(slog.DiscardHandler))
	}()
	return func() { stop(); <-ended }
}

// TestSameTime checks that a change of size reloads a file whose modification
// time is unchanged.
func TestSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testSameTime)
}

func testSameTime(t *testing.T) {
	t.Helper()
	file, at := filepath.Join(t.TempDir(), "blocked"), time.Now()
	put := func(text string) {
		write(t, file, text)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	put("a.example\n")
	r := newFilter(t, filter.Config{Block: filter.Blocklist{Files: []string{file}}})
	put("other.example\n")
	defer follow(t, r)()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if _, _, blocked := r.Blocked(wire("other.example."), dnswire.TypeA); !blocked {
		t.Error("the file is not read again")
	}
}

// lockedBuffer is a log buffer that is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
