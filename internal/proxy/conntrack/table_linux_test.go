package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// numbered returns n flows from one client to a frontend, each from its own port; replies come
// from the frontend itself.
func numbered(n int, to frontend.Address) (all []flow) {
	source := to.Addr.Prev()
	for i := range n {
		if i%50_000 == 0 {
			source = source.Prev()
		}
		all = append(all, flow{
			client: netip.AddrPortFrom(source, uint16(10_000+i%50_000)), to: to, replies: netip.AddrPortFrom(to.Addr, to.Port),
		})
	}
	return all
}

// TestOnlyStaleEntriesAreDeleted compares the kernel's table before and after a pass.
func TestOnlyStaleEntriesAreDeleted(t *testing.T) {
	t.Parallel()
	w := onNode(t, Config{})
	if w == nil {
		return
	}
	const (
		vip, vip2, sctp, other = "10.96.0.10:53", "10.96.0.11:53", "10.96.0.10:9", "10.96.0.99:53"
		vip6, other6           = "[fd00:96::a]:53", "[fd00:96::b]:53"
		pod, gone              = "10.244.1.7:5353", "10.244.3.9:5353"
		pod6, gone6            = "[fd00:244::7]:5353", "[fd00:244::9]:5353"
	)
	udp := func(at string) frontend.Address { return address(at, frontend.UDP) }
	entries := map[string]struct {
		to      frontend.Address
		replies string
		zone    uint16
		deleted bool
	}{
		"stale":                              {to: udp(vip), replies: gone, deleted: true},
		"stale, of a deleted frontend":       {to: udp(vip2), replies: gone, deleted: true},
		"stale, in another zone":             {to: udp(vip), replies: gone, zone: 5, deleted: true},
		"stale, from before the Service":     {to: udp(vip), replies: vip, deleted: true},
		"stale, IPv6":                        {to: udp(vip6), replies: gone6, deleted: true},
		"stale, SCTP":                        {to: address(sctp, frontend.SCTP), replies: gone, deleted: true},
		"of a serving endpoint":              {to: udp(vip), replies: pod},
		"of a serving endpoint, IPv6":        {to: udp(vip6), replies: pod6},
		"of a serving endpoint, SCTP":        {to: address(sctp, frontend.SCTP), replies: pod},
		"untranslated in another zone":       {to: udp(vip), replies: vip, zone: 5},
		"untranslated of a deleted frontend": {to: udp(vip2), replies: vip2},
		"TCP at the same address":            {to: address(vip, frontend.TCP), replies: gone},
		"of another frontend":                {to: udp(other), replies: gone},
		"of another frontend, IPv6":          {to: udp(other6), replies: gone6},
		"direct to the removed endpoint":     {to: udp(gone), replies: gone},
	}
	var flows []flow
	var want []entry
	for _, e := range entries {
		client := netip.MustParseAddr("10.244.1.9")
		if e.to.Addr.Is6() {
			client = netip.MustParseAddr("fd00:244:1::9")
		}
		f := flow{client: netip.AddrPortFrom(client, uint16(40_000+len(flows))), to: e.to, replies: netip.MustParseAddrPort(e.replies), zone: e.zone}
		flows = append(flows, f)
		if !e.deleted {
			want = append(want, entry{destination: f.to, replies: f.replies, zone: f.zone})
		}
	}
	must(t, track(flows...))
	list := func() (all []entry) {
		for _, f := range families {
			for _, p := range protocols {
				all = append(all, tracked(t, scope{f, p})...)
			}
		}
		return all
	}
	if before := list(); len(before) != len(entries) {
		t.Fatalf("%d entries before, want %d: %v", len(before), len(entries), before)
	}
	w.cleaner.Changed([]Target{
		{Address: udp(vip), Endpoints: endpoints(pod)},
		{Address: udp(vip2), Deleted: true},
		{Address: udp(vip6), Endpoints: endpoints(pod6)},
		{Address: address(sctp, frontend.SCTP), Endpoints: endpoints(pod)},
		{Address: address(vip, frontend.TCP), Endpoints: endpoints(pod)},
	})
	if p := w.pass(t); p.Family != ctnetlink.IPv4 || p.Deleted != 5 {
		t.Errorf("pass: %+v, want 5 deleted for IPv4", p)
	}
	if p := w.pass(t); p.Family != ctnetlink.IPv6 || p.Deleted != 1 {
		t.Errorf("pass: %+v, want 1 deleted for IPv6", p)
	}
	if p := w.pass(t); p.Deleted != 0 {
		t.Errorf("second pass: %+v, want none deleted", p)
	}
	after := list()
	order := func(a, b entry) int {
		if c := a.destination.Compare(b.destination); c != 0 {
			return c
		}
		if c := a.replies.Compare(b.replies); c != 0 {
			return c
		}
		return int(a.zone) - int(b.zone)
	}
	slices.SortFunc(after, order)
	slices.SortFunc(want, order)
	if !slices.Equal(after, want) {
		t.Errorf("entries after:\n%+v\nwant:\n%+v", after, want)
	}
}

// TestFilters has the kernel return no entries that the filter leaves out, and all others.
func TestFilters(t *testing.T) {
	t.Parallel()
	if onNode(t, Config{}) == nil {
		return
	}
	at := func(text string) frontend.Address { return address(text, frontend.UDP) }
	must(t, track(
		flow{client: netip.MustParseAddrPort("10.244.1.9:1"), to: at("10.96.0.10:53"), replies: netip.MustParseAddrPort("10.244.1.7:5353")},
		flow{client: netip.MustParseAddrPort("10.244.1.9:2"), to: at("10.96.0.10:54"), replies: netip.MustParseAddrPort("10.244.1.7:5353")},
		flow{client: netip.MustParseAddrPort("10.244.1.9:3"), to: at("10.96.0.11:53"), replies: netip.MustParseAddrPort("10.244.1.7:5353")},
		flow{client: netip.MustParseAddrPort("10.244.1.9:4"), to: address("10.96.0.10:53", frontend.TCP), replies: netip.MustParseAddrPort("10.244.1.7:5353")},
		flow{client: netip.MustParseAddrPort("[fd00::9]:1"), to: at("[fd00:96::a]:53"), replies: netip.MustParseAddrPort("[fd00::7]:5353")},
		flow{client: netip.MustParseAddrPort("[fd00::9]:2"), to: at("[fd00:96::a]:54"), replies: netip.MustParseAddrPort("[fd00::7]:5353")},
		flow{client: netip.MustParseAddrPort("[fd00::9]:3"), to: at("[fd00:96::b]:53"), replies: netip.MustParseAddrPort("[fd00::7]:5353")},
	))
	tests := map[string]struct {
		family ctnetlink.Family
		common common
		want   []string
	}{
		"one protocol":               {ctnetlink.IPv4, common{}, []string{"10.96.0.10:53/udp", "10.96.0.10:54/udp", "10.96.0.11:53/udp"}},
		"one address":                {ctnetlink.IPv4, common{addr: vips[ctnetlink.IPv4]}, []string{"10.96.0.10:53/udp", "10.96.0.10:54/udp"}},
		"one port":                   {ctnetlink.IPv4, common{port: 53}, []string{"10.96.0.10:53/udp", "10.96.0.11:53/udp"}},
		"one address and port":       {ctnetlink.IPv4, common{addr: vips[ctnetlink.IPv4], port: 53}, []string{"10.96.0.10:53/udp"}},
		"IPv6: one address and port": {ctnetlink.IPv6, common{addr: vips[ctnetlink.IPv6], port: 53}, []string{"[fd00:96::a]:53/udp", "[fd00:96::b]:53/udp"}}, // the address is not compared
		"IPv6: one address":          {ctnetlink.IPv6, common{addr: vips[ctnetlink.IPv6]}, []string{"[fd00:96::a]:53/udp", "[fd00:96::a]:54/udp", "[fd00:96::b]:53/udp"}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			table, err := ctnetlink.Open()
			must(t, err)
			defer table.Close()
			var got []string
			must(t, table.Each(filter(scope{tt.family, frontend.UDP}, tt.common), func(found *ctnetlink.Entry) {
				e := entryOf(found)
				got = append(got, e.destination.String())
			}))
			if slices.Sort(got); !slices.Equal(got, tt.want) {
				t.Errorf("filter %+v returns %q, want %q", tt.common, got, tt.want)
			}
		})
	}
}

// TestNewFlowIsNotDeleted has a flow begin anew between the read of its stale entry and the
// deletion.
func TestNewFlowIsNotDeleted(t *testing.T) {
	t.Parallel()
	if onNode(t, Config{}) == nil {
		return
	}
	f := flow{client: netip.MustParseAddrPort("10.244.1.9:1"), to: address("10.96.0.10:53", frontend.UDP), replies: netip.MustParseAddrPort("10.244.1.7:5353")}
	must(t, track(f))
	table, err := ctnetlink.Open()
	must(t, err)
	defer table.Close()
	read := func() (identity ctnetlink.Identity) {
		must(t, table.Each(ctnetlink.Filter{Family: ctnetlink.IPv4}, func(e *ctnetlink.Entry) { identity = e.Identity() }))
		return identity
	}
	remove := func(identity ctnetlink.Identity, want int) {
		t.Helper()
		if removed, err := table.Delete(ctnetlink.IPv4, []ctnetlink.Identity{identity}); removed != want || err != nil {
			t.Errorf("Delete(%x) = %d, %v, want %d, nil", identity, removed, err, want)
		}
	}
	old := read()
	remove(old, 1)
	f.replies = netip.MustParseAddrPort("10.244.1.8:5353")
	must(t, track(f))
	remove(old, 0)
	remove(read(), 1)
}

// TestManyStaleEntries has more deleted than one message holds.
func TestManyStaleEntries(t *testing.T) {
	t.Parallel()
	w := onNode(t, Config{})
	if w == nil {
		return
	}
	const n = 2000 + 1
	at, other := address("10.96.0.10:53", frontend.UDP), address("10.96.0.10:54", frontend.UDP)
	must(t, track(append(numbered(n, at), numbered(n, other)...)...))
	w.cleaner.Changed([]Target{{Address: at, Endpoints: endpoints("10.244.1.7:5353")}})
	if p := w.pass(t); p.Deleted != n {
		t.Errorf("pass: %+v, want %d deleted", p, n)
	}
	for _, e := range tracked(t, scopeOf(at)) {
		if e.destination != other {
			t.Fatalf("there is an entry of %s still", e.destination)
		}
	}
	if got := len(tracked(t, scopeOf(at))); got != n {
		t.Errorf("%d entries of %s, want %d", got, other, n)
	}
}

// TestFullTable has a stale flow deleted while the table has no room for another flow. It does
// not run beside other tests, because namespaces have one table.
func TestFullTable(t *testing.T) {
	w := onNode(t, Config{})
	if w == nil {
		return
	}
	a := serve(t, w.a, netip.AddrPortFrom(w.a.addr[ctnetlink.IPv4], 5353))
	b := serve(t, w.b, netip.AddrPortFrom(w.b.addr[ctnetlink.IPv4], 5353))
	at := frontend.Address{Addr: vips[ctnetlink.IPv4], Protocol: frontend.UDP, Port: 53}
	w.put(t, front(at, a.addr))
	to := netip.AddrPortFrom(at.Addr, at.Port)
	_, answers := talk(t, w.client, to)
	until(t, "answers", func() bool { return answers.Load() > 20 })
	err := track(numbered(limit(t), address("10.99.200.1:443", frontend.TCP))...)
	if !errors.Is(err, unix.ENOMEM) {
		t.Fatalf("filling the table: %v, want %v", err, unix.ENOMEM)
	}
	within(t, w.outside, func() {
		other, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		must(t, err)
		defer other.Close()
		_, err = other.Write([]byte("?"))
		must(t, err)
		must(t, other.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if _, err := other.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("another client got an answer (%v): the table is not full", err)
		}
	})
	targets := w.put(t, front(at, b.addr))
	w.cleaner.Changed(targets)
	if p := w.pass(t); p.Deleted != 1 {
		t.Errorf("pass: %+v, want 1 deleted", p)
	} else {
		t.Logf("one pass over a full table of %d entries took %v", limit(t), p.Duration)
	}
	until(t, "packets to the new endpoint", func() bool { return b.count.Load() > 20 })
}

// limit returns how many entries the table can have.
func limit(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	return n
}

// BenchmarkPass measures a pass that finds nothing stale, and how kube-proxy reads the table.
func BenchmarkPass(b *testing.B) {
	alone := place{network: namespacetest.New(b)}
	var opened table
	var library *netlink.Handle
	within(b, alone, func() {
		var err error
		opened, err = openTable()
		must(b, err)
		library, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
		must(b, err)
	})
	defer opened.Close()
	defer library.Close()
	fill := func(to frontend.Address) {
		within(b, alone, func() { must(b, track(numbered(50_000, to)...)) })
	}
	udp, tcp := address("10.96.0.10:53", frontend.UDP), address("10.96.0.10:443", frontend.TCP)
	udp2 := address("10.97.0.99:9", frontend.UDP)
	one := targets{udp: nil}
	many := targets{udp: nil, udp2: endpoints("10.244.1.7:5353")}
	measure := func(name string) {
		for of, all := range map[string]targets{"one frontend": one, "several frontends": many} {
			b.Run(name+"/"+of, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if n, err := opened.clean(scope{ctnetlink.IPv4, frontend.UDP}, all); n != 0 || err != nil {
						b.Fatalf("clean: %d, %v", n, err)
					}
				}
			})
		}
		b.Run(name+"/without a filter, by kube-proxy's library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := library.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	measure("empty")
	fill(tcp)
	measure("50,000 TCP")
	fill(address("10.97.0.10:5000", frontend.UDP))
	measure("50,000 TCP and 50,000 UDP")
}
