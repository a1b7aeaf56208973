package localzone_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/zone"
)

const header = "@ 600 IN SOA ns admin 7 3600 600 86400 120\n"

// TestRefusedFiles checks that each error names file, line and reason.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct{ text, want string }{
		"an address":            {header + "www A 192.0.2.300\n", `:2: A record: "192.0.2.300" is not an IPv4 address`},
		"an IPv6 address":       {header + "www AAAA 192.0.2.1\n", `:2: AAAA record: "192.0.2.1" is not an IPv6 address`},
		"a missing value":       {header + "www MX 10\n", `:2: bad MX Mx: the value is missing`},
		"an unknown directive":  {header + "\n$FOO 3\n", `:3: unknown directive "$FOO"; write \$ if a name begins with it`},
		"one like a record":     {header + "$FOO A 192.0.2.1\n", `:2: unknown directive "$FOO"; write \$ if a name begins with it`},
		"an open quote":         {header + "www TXT \"open\nx A 192.0.2.1\n", `:2: a quoted string is open until the end of the file`},
		"quotes that meet":      {header + "www TXT \"open\nx TXT \"text\"\ny A 192.0.2.1\n", `:2: a quoted string is open until the end of the file`},
		"much text":             {header + "www TXT" + strings.Repeat(" "+strings.Repeat("x", 250), 300) + "\n", `:2: www.corp.example. TXT: more than 65,535 octets of data`},
		"a long string":         {header + "www X25 " + strings.Repeat("1", 256) + "\n", `:2: www.corp.example. X25: a character-string of more than 255 octets`},
		"a generated address":   {header + "\n$GENERATE 254-300 a$ A 192.0.2.$\nb A 192.0.2.1\n", `:3: A record: "192.0.2.256" is not an IPv4 address`},
		"a generated alias":     {header + "\n$GENERATE 1-2 a CNAME b$\n", `:3: a.corp.example. CNAME: a second CNAME record`},
		"after generated ones":  {header + "$GENERATE 1-2 a$ A 192.0.2.$\nb A 1\n", `:3: A record: "1" is not an IPv4 address`},
		"a range":               {header + "$GENERATE 1-x a$ A 192.0.2.$\n", `:2: bad stop in $GENERATE range: "1-x"`},
		"an unknown type":       {header + "\nwww FOO bar\n", `:3: neither a type nor a TTL: "FOO"`},
		"a record elsewhere":    {header + "www.example.net. A 192.0.2.1\n", ":2: www.example.net. is not in the zone corp.example."},
		"an alias beside":       {header + "www A 192.0.2.1\nwww CNAME ns\n", ":3: www.corp.example. CNAME: a CNAME record beside other records"},
		"records beside alias":  {header + "www CNAME ns\nwww A 192.0.2.1\n", ":3: www.corp.example. A: a CNAME record beside other records"},
		"two aliases":           {header + "www CNAME ns\nwww CNAME ns2\n", ":3: www.corp.example. CNAME: a second CNAME record"},
		"an alias at the apex":  {header + "@ CNAME ns\n", ":2: corp.example. CNAME: a CNAME record beside other records"},
		"two SOA records":       {header + header, ":2: a second SOA record"},
		"a SOA record below":    {"www SOA ns admin 7 3600 600 86400 120\n", ":1: www.corp.example.: a SOA record below the zone's apex"},
		"a delegated wildcard":  {header + "*.lab NS ns\n", ":2: *.lab.corp.example. NS: a wildcard cannot be delegated"},
		"text at a delegation":  {header + "lab NS ns\nlab TXT x\n", ":3: lab.corp.example. TXT: the name is delegated; only NS, DS, A and AAAA records can be here"},
		"text below delegation": {header + "www.lab TXT x\nlab NS ns\n", ":2: www.lab.corp.example. TXT: a name above it is delegated; only A and AAAA records of its name servers can be here"},
		"a signed zone":         {header + "@ DNSKEY 257 3 13 AwEA\n", ":2: corp.example. DNSKEY: a record of a signed zone; signatures are not served, so give the zone without them"},
		"DNAME":                 {header + "lab DNAME example.net.\n", ":2: lab.corp.example.: DNAME records are not served; give the names below one by one, or use dns.rewrite"},
		"another file":          {header + "$INCLUDE /etc/passwd\n", `:2: $INCLUDE directive not allowed: "/etc/passwd"`},
		"another class":         {header + "www CH TXT x\n", ":2: www.corp.example. TXT: not of class IN"},
		"several lines":         {header + "www TXT (\n a\n b\n c )\nwww CNAME ns\n", ":6: www.corp.example. CNAME: a CNAME record beside other records"},
		"too many records":      {header + strings.Repeat("$GENERATE 0-65535 $ A 192.0.2.1\n", 5), ":3: more than 100000 records"},
		"half a file":           {header + "www A", `:2: neither a type nor a TTL: "A"`},
		"no SOA record":         {"www A 192.0.2.1\n", ": no SOA record of corp.example."},
		"an empty file":         {"", ": no SOA record of corp.example."},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(tt.text)
			_, err := localzone.New(w.config(), new(localzone.Zones))
			if err == nil || err.Error() != w.file+tt.want {
				t.Errorf("New with %q: %v\nwant FILE%s", tt.text, err, tt.want)
			}
		})
	}
}

// world is a file with the zone corp.example, and the zone made of it.
type world struct {
	*testing.T
	file  string
	zones *localzone.Zones
	db    *zone.DB
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{T: t, file: filepath.Join(t.TempDir(), "corp.zone")}
}

func (w *world) config() localzone.Config {
	apex := dnsname.MustParse("corp.example")
	return localzone.Config{
		Sources: []localzone.Source{{Apex: apex, File: w.file, TTL: 300}},
		Inner:   []dnsname.Name{apex},
		SOA:     dnswire.SOA{MName: apex, RName: apex, Serial: 1, TTL: 5, Minimum: 5},
	}
}

// write replaces the file at once, as a ConfigMap's link does.
func (w *world) write(text string) {
	w.Helper()
	if err := os.WriteFile(w.file+".new", []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(w.file+".new", w.file); err != nil {
		w.Fatal(err)
	}
}

// open makes the zones, as at the start of a process.
func (w *world) open() {
	w.Helper()
	w.openWith(w.config())
}

func (w *world) openWith(cfg localzone.Config) {
	w.Helper()
	var err error
	if w.zones, err = localzone.New(cfg, nil); err != nil {
		w.Fatal(err)
	}
	if w.db, err = zone.NewWithWildcards(nil, w.zones.SOAs()); err != nil {
		w.Fatal(err)
	}
	w.db.SetHistoryLimits(zone.HistoryLimits{Changes: 100, Octets: 1 << 20})
	w.zones.Publish(w.db)
}

func (w *world) lookup(name string, t dnswire.Type) zone.Answer {
	return w.db.Lookup(new(zone.Scratch), []byte(dnsname.MustParse(name).WireLabels()), t)
}

func (w *world) want(name string, o zone.Outcome, serial uint32) {
	w.Helper()
	a := w.lookup(name, dnswire.TypeA)
	if a.Outcome != o || a.SOA.Serial != serial {
		w.Errorf("Lookup(%s) = outcome %d, serial %d; want %d, %d", name, a.Outcome, a.SOA.Serial, o, serial)
	}
}

// TestReload checks that a file is read again when it changes, that one that cannot be
// used changes nothing, and how the serial follows.
func TestReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(header + "one A 192.0.2.1\n")
		w.open()
		w.want("one.corp.example", zone.Found, 7)
		w.want("two.corp.example", zone.NXDomain, 7)

		ctx, stop := context.WithCancel(t.Context())
		changes, ended := 0, make(chan struct{})
		go func() {
			defer close(ended)
			_ = w.zones.Run(ctx, slog.New(slog.DiscardHandler), w.db, func() { changes++ })
		}()
		for _, step := range []struct {
			text     string
			one, two zone.Outcome
			serial   uint32
			changes  int
			problem  string
		}{
			{header + "two A 192.0.2.2\n", zone.NXDomain, zone.Found, 8, 1, ""},
			{header + "two A broken\n", zone.NXDomain, zone.Found, 8, 1, ":2: A record"},
			{"", zone.NXDomain, zone.Found, 8, 1, "no SOA record"},
			{strings.Replace(header, " 7 ", " 2026010100 ", 1) + "one A 192.0.2.1\n", zone.Found, zone.NXDomain, 2026010100, 2, ""},
			{strings.Replace(header, " 7 ", " 9 ", 1) + "one A 192.0.2.1\n", zone.Found, zone.NXDomain, 2026010100, 3, ""},
		} {
			w.write(step.text)
			time.Sleep(7 * time.Second) // the empty file seems cut off
			synctest.Wait()
			w.want("one.corp.example", step.one, step.serial)
			w.want("two.corp.example", step.two, step.serial)
			problems := strings.Trim(fmt.Sprint(w.zones.Problems()), "[]")
			if changes != step.changes || !strings.Contains(problems, step.problem) || (step.problem == "") != (problems == "") {
				t.Errorf("after %q: %d changes, problems %q; want %d, %q", step.text, changes, problems, step.changes, step.problem)
			}
		}
		d, err := w.db.Since(dnsname.MustParse("corp.example"), 7)
		if err != nil {
			t.Fatal(err)
		}
		if deleted, added := d.Records(zone.RecordsOnly); len(deleted)+len(added) != 0 {
			t.Errorf("Since(7) = -%d +%d records, want the same as at first", len(deleted), len(added))
		}
		stop()
		<-ended
	})
}

// TestStart checks that a process starts without a file, and reads it when it appears: the
// serial is then the file's, although that of zones without a file is later.
func TestStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config()
		cfg.SOA.Serial = 1_790_000_000
		w.openWith(cfg)
		if a := w.lookup("one.corp.example", dnswire.TypeA); a.Outcome != zone.Unanswered {
			t.Errorf("Lookup without a file = outcome %d, want %d", a.Outcome, zone.Unanswered)
		}
		if a := w.lookup("corp.example", dnswire.TypeSOA); a.Outcome != zone.Unanswered {
			t.Errorf("Lookup of SOA without a file = outcome %d, want %d", a.Outcome, zone.Unanswered)
		}
		if _, err := w.db.Version(dnsname.MustParse("corp.example")); err == nil {
			t.Error("Version without a file: no error, want that the zone is not loaded")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = w.zones.Run(ctx, slog.New(slog.DiscardHandler), w.db, func() {})
		}()
		w.write(header + "one A 192.0.2.1\n")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.want("one.corp.example", zone.Found, 7)
		w.want("two.corp.example", zone.NXDomain, 7)
		w.write(header + "two A 192.0.2.1\n")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.want("two.corp.example", zone.Found, 8)
		for serial, want := range map[uint32]error{7: nil, 8: nil, 6: zone.ErrHistory, 1_790_000_000: zone.ErrHistory} {
			if _, err := w.db.Since(dnsname.MustParse("corp.example"), serial); !errors.Is(err, want) {
				t.Errorf("Since(%d): %v, want %v", serial, err, want)
			}
		}
		stop()
		<-ended
	})
}

// TestWrittenInPlace checks that a file that is cut off while it is overwritten is not
// served, and that a shorter one is, after a while.
func TestWrittenInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		whole := header + "one A 192.0.2.1\ntwo A 192.0.2.2\n"
		w.write(whole)
		w.open()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = w.zones.Run(ctx, slog.New(slog.DiscardHandler), w.db, func() {})
		}()
		put := func(text string, wait time.Duration) {
			t.Helper()
			if err := os.WriteFile(w.file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			synctest.Wait()
		}
		for end := range len(whole) {
			put(whole[:end], 300*time.Millisecond)
			w.want("two.corp.example", zone.Found, 7)
		}
		put(whole+"three A 192.0.2.3", 3*time.Second) // without its newline
		w.want("three.corp.example", zone.NXDomain, 7)
		put(whole+"three A 192.0.2.3\n", 3*time.Second)
		w.want("three.corp.example", zone.Found, 8)
		put(header+"one A 192.0.2.1\n", 4*time.Second)
		w.want("two.corp.example", zone.Found, 8)
		time.Sleep(4 * time.Second)
		w.want("two.corp.example", zone.NXDomain, 9)
		stop()
		<-ended
	})
}

// TestHangingFile checks that a file whose reads hang does not delay another one.
func TestHangingFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg, apex := w.config(), dnsname.MustParse("lab.example")
		pipe := w.file + ".lab"
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Skip(err)
		}
		cfg.Sources = append(cfg.Sources, localzone.Source{Apex: apex, File: pipe, TTL: 300})
		cfg.Inner = append(cfg.Inner, apex)
		w.write(header)
		w.openWith(cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = w.zones.Run(ctx, slog.New(slog.DiscardHandler), w.db, func() {})
		}()
		for i := range 5 {
			w.write(header + fmt.Sprintf("n%d A 192.0.2.1\n", i))
			time.Sleep(1700 * time.Millisecond)
			synctest.Wait()
			w.want(fmt.Sprintf("n%d.corp.example", i), zone.Found, uint32(8+i))
		}
		if problems := fmt.Sprint(w.zones.Problems()); !strings.Contains(problems, "lab.example. is not loaded: read "+pipe+": no answer in time") {
			t.Errorf("Problems() = %s, want that of %s", problems, pipe)
		}
		stop()
		<-ended
	})
}

// TestUnanswerable checks that records that fit into no message are warned of when the zone
// is loaded, and others are not.
func TestUnanswerable(t *testing.T) {
	t.Parallel()
	text := " " + strings.Repeat("x", 250)
	for claim, tt := range map[string]struct{ records, want string }{
		"equal records": {strings.Repeat("www TXT"+text+"\n", 300), ""},
		"one of many":   {"www TXT" + strings.Repeat(text, 260) + "\n", ""},
		"two":           {"\nwww TXT" + strings.Repeat(text, 260) + "\nwww TXT" + strings.Repeat(text, 2) + "\n", ":3: www.corp.example. TXT: the response with these records has 65820 octets, and a message at most 65535: no client gets them"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(header + tt.records)
			w.open()
			want := []string(nil)
			if tt.want != "" {
				want = []string{w.file + tt.want}
			}
			if got := w.zones.Warnings(); !slices.Equal(got, want) {
				t.Errorf("Warnings() = %q, want %q", got, want)
			}
		})
	}
}

// TestReconfigure checks that a zone keeps its content if its file is broken when the
// configuration is loaded again.
func TestReconfigure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(header + "one A 192.0.2.1\n")
	w.open()
	w.write("broken")
	again, err := localzone.New(w.config(), w.zones)
	if err != nil {
		t.Fatal(err)
	}
	if w.db, err = zone.NewWithWildcards(nil, again.SOAs()); err != nil {
		t.Fatal(err)
	}
	again.Publish(w.db)
	w.want("one.corp.example", zone.Found, 7)
}

// TestReconfigureWithoutFile checks that a file that was missing at the start does not
// keep the configuration from being loaded again, but a new one does.
func TestReconfigureWithoutFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
	again, err := localzone.New(w.config(), w.zones)
	if err != nil {
		t.Fatalf("New with the file that was missing at the start: %v", err)
	}
	if problems := again.Problems(); len(problems) != 1 || !strings.Contains(problems[0].Error(), w.file) {
		t.Errorf("Problems() = %q, want that of %s", problems, w.file)
	}
	cfg, apex := w.config(), dnsname.MustParse("lab.example")
	cfg.Sources = append(cfg.Sources, localzone.Source{Apex: apex, File: w.file + ".lab", TTL: 300})
	cfg.Inner = append(cfg.Inner, apex)
	if _, err := localzone.New(cfg, w.zones); err == nil || !strings.Contains(err.Error(), w.file+".lab") {
		t.Errorf("New with another file that is missing: %v, want an error that names it", err)
	}
}

// TestLargeRecords checks that the octets of all zones together are bounded, and that a
// zone may take the place of one as large.
func TestLargeRecords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(" "+strings.Repeat("x", 250), 20) // about 5 KB
	large := header + "$GENERATE 1-4000 a$ TXT" + long + "\n"
	w := newWorld(t)
	w.write(large + "$GENERATE 1-4000 b$ TXT" + long + "\n")
	want := w.file + ":3: the records of all zones have more than 32 MiB"
	if _, err := localzone.New(w.config(), new(localzone.Zones)); err == nil || err.Error() != want {
		t.Errorf("New with 40 MB of records: %v, want %s", err, want)
	}
	w.write(large)
	w.open()
	w.write(large + "two A 192.0.2.2\n")
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	_ = w.zones.Run(ctx, slog.New(slog.DiscardHandler), w.db, stop)
	if w.want("two.corp.example", zone.Found, 8); len(w.zones.Problems()) > 0 {
		t.Errorf("20 MB in place of 20 MB: problems %q", w.zones.Problems())
	}
	cfg, apex := w.config(), dnsname.MustParse("lab.example")
	other := w.file + ".lab"
	if err := os.WriteFile(other, []byte(large), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Sources = append(cfg.Sources, localzone.Source{Apex: apex, File: other, TTL: 300})
	cfg.Inner = append(cfg.Inner, apex)
	want = other + ":2: the records of all zones have more than 32 MiB"
	if _, err := localzone.New(cfg, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := localzone.New(cfg, w.zones); err == nil || err.Error() != want {
		t.Errorf("New with two zones of 20 MB: %v, want %s", err, want)
	}
}
