package ipam_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/network/ipam"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func ranges(all ...string) (list []netip.Prefix) {
	for _, text := range all {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func open(tb testing.TB, dir string, of ...string) *ipam.Pool {
	tb.Helper()
	p, err := ipam.Open(ipam.Config{
		Dir: dir, Ranges: ranges(of...), Reuse: time.Minute, Log: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	})
	must(tb, err)
	return p
}

// id returns the ID of the nth attachment.
func id(n int) attach.ID { return attach.ID{ContainerID: fmt.Sprint("c", n), Interface: "eth0"} }

// record returns a record of that attachment.
func record(n int) ipam.Record {
	return ipam.Record{ID: id(n), Namespace: "shop", Name: fmt.Sprint("pod-", n), Device: "ptl0", Data: []byte(`{"n":1}`)}
}

// assign returns the addresses that the nth attachment gets.
func assign(tb testing.TB, p *ipam.Pool, n int) string {
	tb.Helper()
	r, err := p.Assign(record(n))
	must(tb, err)
	return texts(r.Addresses)
}

func texts(addrs []netip.Addr) string { return strings.Trim(fmt.Sprint(addrs), "[]") }

// TestEdges: every address of a range is given but those that hosts take for the network.
func TestEdges(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]string{
		"192.0.2.8/29":      "192.0.2.9 192.0.2.10 192.0.2.11 192.0.2.12 192.0.2.13 192.0.2.14",
		"192.0.2.8/30":      "192.0.2.9 192.0.2.10",
		"192.0.2.8/31":      "192.0.2.8 192.0.2.9",
		"192.0.2.8/32":      "192.0.2.8",
		"2001:db8::/126":    "2001:db8::1 2001:db8::2 2001:db8::3",
		"2001:db8::8/127":   "2001:db8::8 2001:db8::9",
		"2001:db8::8/128":   "2001:db8::8",
		"2001:db8::8:0/126": "2001:db8::8:1 2001:db8::8:2 2001:db8::8:3",
	} {
		p := open(t, t.TempDir(), of)
		var got []string
		for n := range p.Stats()[0].Size {
			got = append(got, assign(t, p, int(n)))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("range %s: Assign gives %s, want %s", of, got, want)
		}
		used := len(p.All())
		_, err := p.Assign(record(used))
		if full, ok := errors.AsType[*ipam.ExhaustedError](err); !ok || full.Range.String() != of || full.Used != used {
			t.Errorf("range %s: Assign of one more = %v, want an error of %d addresses used", of, err, used)
		}
	}
}

// TestSize: ranges that are larger than any node needs.
func TestSize(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]struct {
		size  uint64
		first string
	}{
		"10.0.0.0/16":     {1<<16 - 2, "10.0.0.1"},
		"0.0.0.0/0":       {1<<32 - 2, "0.0.0.1"},
		"2001:db8::/64":   {1<<64 - 1, "2001:db8::1"},
		"2001:db8::/65":   {1<<63 - 1, "2001:db8::1"},
		"2001:db8::/48":   {1<<64 - 1, "2001:db8::1"},
		"2001:db8:0::/80": {1<<48 - 1, "2001:db8::1"},
	} {
		p := open(t, t.TempDir(), of)
		if got := assign(t, p, 0); got != want.first || p.Stats()[0].Size != want.size {
			t.Errorf("range %s: %s of %d addresses, want %s of %d", of, got, p.Stats()[0].Size, want.first, want.size)
		}
	}
}

func TestAssign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := open(t, dir, "2001:db8::/64", "10.0.0.0/24")
	const want = "10.0.0.1 2001:db8::1"
	if got := assign(t, p, 1); got != want {
		t.Errorf("Assign = %s, want %s", got, want)
	}
	changed := record(1)
	changed.NetNS = "/run/netns/other"
	again, err := p.Assign(changed)
	must(t, err)
	if got := texts(again.Addresses); got != want || again.NetNS != changed.NetNS {
		t.Errorf("Assign of the same attachment = %s in %s, want %s in %s", got, again.NetNS, want, changed.NetNS)
	}
	if got := assign(t, p, 2); got != "10.0.0.2 2001:db8::2" {
		t.Errorf("Assign of another attachment = %s", got)
	}
	after := open(t, dir, "10.0.0.0/24", "2001:db8::/64")
	got, ok := after.Get(id(1))
	if !ok || texts(got.Addresses) != want || got.NetNS != changed.NetNS || got.Pod() != "shop/pod-1" || got.Device != "ptl0" || string(got.Data) != `{"n":1}` {
		t.Errorf("after a restart Get = %+v, %t", got, ok)
	}
	if all := after.All(); len(all) != 2 || all[0].ID != id(1) || all[1].ID != id(2) {
		t.Errorf("after a restart All = %v", all)
	}
	if got := assign(t, after, 3); got != "10.0.0.3 2001:db8::3" {
		t.Errorf("after a restart Assign = %s, want the next addresses", got)
	}
}

// TestReuse: a released address is given last, also after a restart, and not at all within the time where there
// is another one.
func TestReuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := open(t, dir, "10.0.0.0/29") // .1 to .6
		for n := 1; n <= 4; n++ {
			assign(t, p, n)
		}
		for _, n := range []int{2, 1} {
			must(t, p.Release(id(n)))
			time.Sleep(time.Second)
		}
		if s := p.Stats()[0]; s.Used != 2 || s.HeldBack != 2 {
			t.Errorf("Stats = %+v, want 2 used, 2 held back", s)
		}
		p = open(t, dir, "10.0.0.0/29")
		if s := p.Stats()[0]; s.Used != 2 || s.HeldBack != 2 {
			t.Errorf("after a restart Stats = %+v, want 2 used, 2 held back", s)
		}
		var got []string
		for n := 11; n <= 14; n++ {
			got = append(got, assign(t, p, n))
		}
		if want := []string{"10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.1"}; !slices.Equal(got, want) {
			t.Errorf("Assign gives %v, want %v", got, want)
		}
		must(t, p.Release(id(11)))
		time.Sleep(time.Minute)
		if s := p.Stats()[0]; s.HeldBack != 0 {
			t.Errorf("after the time Stats = %+v, want none held back", s)
		}
		must(t, p.Release(id(12))) // removes the files of tombstones before
		must(t, p.Release(id(12)))
		assign(t, p, 15)
		if files, err := os.ReadDir(dir); err != nil || len(files) != 6 { // 3, 4, 13, 14, 15 and the tombstone of 12
			t.Errorf("the directory has %v, %v", files, err)
		}
	})
}

// TestSameAttachment: an attachment that comes back gets the addresses that it had, although they are held back.
func TestSameAttachment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := open(t, dir, "10.0.0.0/24", "2001:db8::/64")
	want := assign(t, p, 1)
	assign(t, p, 2)
	must(t, p.Release(id(1)))
	p = open(t, dir, "10.0.0.0/24", "2001:db8::/64")
	if got := assign(t, p, 1); got != want {
		t.Errorf("Assign after Release = %s, want %s", got, want)
	}
}

// TestEndedMeanwhile: the plugin marks a record when no process answers, which may have read it or ended the attachment by
// then. The mark stays behind in no case.
func TestEndedMeanwhile(t *testing.T) {
	t.Parallel()
	for claim, before := range map[string]func(*ipam.Pool){
		"while it is in use": func(*ipam.Pool) {},
		"after its end":      func(p *ipam.Pool) { must(t, p.Release(id(1))) },
	} {
		for next, then := range map[string]func(*ipam.Pool) error{
			"it ends":      func(p *ipam.Pool) error { return p.Release(id(1)) },
			"begins again": func(p *ipam.Pool) error { _, err := p.Assign(record(1)); return err },
		} {
			socket := filepath.Join(t.TempDir(), "cni.sock")
			p := open(t, attach.LinkRecords(socket), "10.0.0.0/24")
			want := assign(t, p, 1)
			before(p)
			attach.End(socket, id(1))
			must(t, then(p))
			files, err := os.ReadDir(attach.LinkRecords(socket))
			must(t, err)
			if len(files) != 1 || files[0].Name() != id(1).String()+attach.LinkSuffix {
				t.Errorf("marked %s, and %s: the files are %v", claim, next, files)
			}
			p = open(t, attach.LinkRecords(socket), "10.0.0.0/24")
			if got := assign(t, p, 1); got != want || len(p.Ended()) > 0 {
				t.Errorf("marked %s, and %s: %s, ended %v, want %s", claim, next, got, p.Ended(), want)
			}
		}
	}
}

func TestSetRanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := open(t, dir)
	if _, err := p.Assign(record(1)); !errors.Is(err, ipam.ErrNoRanges) {
		t.Errorf("Assign without ranges = %v, want %v", err, ipam.ErrNoRanges)
	}
	must(t, p.SetRanges(ranges("10.0.0.0/30")))
	assign(t, p, 1)
	assign(t, p, 2)
	must(t, p.SetRanges(ranges("10.0.1.0/30", "2001:db8::/64")))
	if got := assign(t, p, 1); got != "10.0.0.1 2001:db8::1" {
		t.Errorf("after SetRanges Assign = %s, want its old address, and one of the new family", got)
	}
	if got := assign(t, p, 3); got != "10.0.1.1 2001:db8::2" {
		t.Errorf("after SetRanges Assign = %s, want new addresses", got)
	}
	must(t, p.Release(id(1)))
	must(t, p.SetRanges(ranges("10.0.0.0/30")))
	if s := p.Stats()[0]; s.Used != 1 || s.HeldBack != 1 {
		t.Errorf("with the old range Stats = %+v, want one used, one held back", s)
	}
	for _, wrong := range [][]netip.Prefix{
		ranges("10.0.0.0/24", "10.0.1.0/24"), {netip.Prefix{}}, ranges("::ffff:10.0.0.0/120"),
	} {
		if err := p.SetRanges(wrong); err == nil {
			t.Errorf("SetRanges(%v) = nil", wrong)
		}
	}
}

// TestExhausted: where one family has no address, none of the other is taken.
func TestExhausted(t *testing.T) {
	t.Parallel()
	p := open(t, t.TempDir(), "10.0.0.0/24", "2001:db8::1/128")
	assign(t, p, 1)
	_, err := p.Assign(record(2))
	if full, ok := errors.AsType[*ipam.ExhaustedError](err); !ok || full.Range.String() != "2001:db8::1/128" {
		t.Errorf("Assign = %v, want an error of the range of IPv6", err)
	}
	if s := p.Stats()[0]; s.Used != 1 || len(p.All()) != 1 {
		t.Errorf("after the error Stats = %+v, want one used", s)
	}
}

// TestFiles: files that are no records of this boot.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	old := time.Now().Add(-time.Hour)
	entry := func(n int, created time.Time, addrs ...string) ipam.Entry {
		e := ipam.Entry{Record: record(n)}
		e.Created = created
		for _, a := range addrs {
			e.Addresses = append(e.Addresses, netip.MustParseAddr(a))
		}
		return e
	}
	methods := ipam.Methods(dir, "this", log)
	must(t, methods.Write(entry(1, old.Add(time.Minute), "10.0.0.1", "2001:db8::1")))
	must(t, methods.Write(entry(2, old, "10.0.0.1")))
	must(t, ipam.Methods(dir, "before", log).Write(entry(3, old, "10.0.0.3")))
	path := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(path("c4,eth0.record"), []byte("half"), 0o600))
	must(t, os.Rename(path("c1,eth0.record"), path("c5,eth0.record"))) // is that of another
	must(t, methods.Write(entry(1, old.Add(time.Minute), "10.0.0.1", "2001:db8::1")))
	for _, name := range []string{"c6,eth0.record.new-1", "note"} {
		must(t, os.WriteFile(path(name), []byte("half"), 0o600))
		must(t, os.Chtimes(path(name), old, old))
	}
	cfg := ipam.Config{Ranges: ranges("10.0.0.0/24"), Log: log}
	for range 2 { // the second finds the same, and nothing to complain of
		p, err := ipam.OpenStore(cfg, methods)
		must(t, err)
		var got []string
		for _, r := range p.All() {
			got = append(got, r.ContainerID+": "+texts(r.Addresses))
		}
		if want := []string{"c1: 2001:db8::1", "c2: 10.0.0.1"}; !slices.Equal(got, want) {
			t.Errorf("the records are %q, want %q", got, want)
		}
	}
	var names []string
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	want := []string{"c1,eth0.record", "c2,eth0.record", "c4,eth0.record.bad", "c5,eth0.record.bad", "note"}
	if !slices.Equal(names, want) {
		t.Errorf("the directory has %q, want %q", names, want)
	}
	if n := strings.Count(text.String(), "level=WARN"); n != 3 || !strings.Contains(text.String(), "pod=shop/pod-2 other=shop/pod-1") {
		t.Errorf("%d warnings, want 3:\n%s", n, &text)
	}
}

func TestInvalidID(t *testing.T) {
	t.Parallel()
	p := open(t, t.TempDir(), "10.0.0.0/24")
	for _, wrong := range []attach.ID{
		{}, {ContainerID: "a"}, {Interface: "eth0"}, {ContainerID: "../a", Interface: "eth0"},
		{ContainerID: "a", Interface: ".."}, {ContainerID: "a,b", Interface: "c"}, {ContainerID: strings.Repeat("a", 129), Interface: "eth0"},
	} {
		if _, err := p.Assign(ipam.Record{ID: wrong}); err == nil {
			t.Errorf("Assign(%q) = nil", wrong)
		}
	}
}

// TestFullDisk: an Assign that cannot be recorded changes nothing, and a Release that cannot frees the addresses.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	methods := ipam.Methods(t.TempDir(), "", slog.New(slog.DiscardHandler))
	full, write := errors.New("no space left on device"), methods.Write
	p, err := ipam.OpenStore(ipam.Config{Ranges: ranges("10.0.0.0/30"), Reuse: time.Minute, Log: slog.New(slog.DiscardHandler)}, &methods)
	must(t, err)
	assign(t, p, 1)
	methods.Write = func(ipam.Entry) error { return full }
	if _, err := p.Assign(record(2)); !errors.Is(err, full) {
		t.Errorf("Assign = %v, want %v", err, full)
	}
	if err := p.Release(id(1)); err != nil || len(p.All()) != 0 {
		t.Errorf("Release = %v, and %d records stay", err, len(p.All()))
	}
	methods.Write = write
	if got := assign(t, p, 3) + " " + assign(t, p, 4); got != "10.0.0.2 10.0.0.1" {
		t.Errorf("Assign gives %s afterwards", got)
	}
}

// TestParallel: attachments that come and go at once never share an address.
func TestParallel(t *testing.T) {
	t.Parallel()
	p := open(t, t.TempDir(), "10.0.0.0/24", "2001:db8::/64")
	var owners sync.Map
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			for range 3 {
				r, err := p.Assign(record(n))
				if err != nil {
					t.Errorf("Assign: %v", err)
					return
				}
				for _, a := range r.Addresses {
					if other, taken := owners.LoadOrStore(a, n); taken {
						t.Errorf("%d and %d have %s", n, other, a)
					}
				}
				for _, a := range r.Addresses {
					owners.Delete(a)
				}
				if err := p.Release(r.ID); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
	if len(p.All()) != 0 || p.Stats()[0].Used != 0 || p.Stats()[1].Used != 0 {
		t.Errorf("%d records, %+v stay", len(p.All()), p.Stats())
	}
}

// BenchmarkAssign is an Assign and a Release of the longest-lived Pod, with a number of addresses used.
func BenchmarkAssign(b *testing.B) {
	for _, used := range []int{0, 1000, 60000} {
		b.Run(fmt.Sprint("used=", used), func(b *testing.B) {
			p := open(b, b.TempDir(), "10.0.0.0/16", "2001:db8::/64")
			for n := range used {
				assign(b, p, n)
			}
			n := 0
			for b.Loop() {
				if _, err := p.Assign(record(used + n)); err != nil {
					b.Fatal(err)
				}
				if err := p.Release(id(n)); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}
