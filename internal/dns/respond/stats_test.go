package respond_test

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

func TestStats(t *testing.T) {
	stats := respond.NewStats([]dnsname.Name{dnsname.MustParse("cluster.local"), dnsname.ReverseIPv4}, 4)
	r, err := respond.New(respond.Config{Data: exampleDB(t), Stats: stats})
	if err != nil {
		t.Fatal(err)
	}
	v4 := respond.Client{Addr: netip.MustParseAddr("192.0.2.1")}
	v6 := respond.Client{Addr: netip.MustParseAddr("2001:db8::1"), Transport: respond.TCP}
	seat := 0
	ask := func(q dnswire.QuerySpec, c respond.Client) {
		seat++ // there are more of them than shards
		r.NewWorker(seat).Respond(query(t, q), c, make([]byte, 0, dnswire.MaxMessage))
	}
	for range 3 {
		ask(dnswire.QuerySpec{Name: "web.shop.svc.cluster.local", Type: dnswire.TypeA}, v4)
	}
	ask(dnswire.QuerySpec{Name: "web.shop.svc.cluster.local", Type: dnswire.TypeAAAA}, v6)
	ask(dnswire.QuerySpec{Name: "wbe.shop.svc.cluster.local", Type: dnswire.TypeA, UDPSize: 1232}, v4)
	ask(dnswire.QuerySpec{Name: "web.shop.svc.cluster.local", Type: 65}, v4)
	ask(dnswire.QuerySpec{Name: "1.0.96.10.in-addr.arpa", Type: dnswire.TypePTR}, v4)
	ask(dnswire.QuerySpec{Name: "example.com", Type: dnswire.TypeA, UDPSize: 1232}, v4)
	r.NewWorker(0).Respond([]byte("short"), v4, make([]byte, 0, dnswire.MaxMessage))

	got := stats.Counts()
	const z, arpa = "cluster.local.", "in-addr.arpa."
	want := []respond.Requests{
		{Transport: "udp", Family: "ipv4", Zone: z, Type: "A", RCode: "NOERROR", Count: 3},
		{Transport: "tcp", Family: "ipv6", Zone: z, Type: "AAAA", RCode: "NOERROR", Count: 1},
		{Transport: "udp", Family: "ipv4", Zone: z, Type: "A", RCode: "NXDOMAIN", Count: 1},
		{Transport: "udp", Family: "ipv4", Zone: z, Type: "other", RCode: "NOERROR", Count: 1},
		{Transport: "udp", Family: "ipv4", Zone: arpa, Type: "PTR", RCode: "NOERROR", Count: 1},
		{Transport: "udp", Family: "ipv4", Zone: ".", Type: "A", RCode: "REFUSED", Count: 1},
	}
	less := cmpopts.SortSlices(func(a, b respond.Requests) bool { return a.Zone+a.Type+a.RCode < b.Zone+b.Type+b.RCode })
	if d := cmp.Diff(want, got.Requests, less); d != "" {
		t.Errorf("requests: (-want +got)\n%s", d)
	}
	if d := cmp.Diff(map[uint16]uint64{0: 1, 20: 1}, got.EDE); d != "" {
		t.Errorf("EDE: (-want +got)\n%s", d)
	}
	if d := cmp.Diff(map[string]uint64{"udp": 1}, got.Dropped); d != "" {
		t.Errorf("dropped: (-want +got)\n%s", d)
	}
	sizes := got.QuerySize[0]
	if sizes.Transport != "udp" || sizes.Count != 8 || sizes.Buckets[64] != 8 || sizes.Sum < 8*30 || sizes.Sum > 8*64 {
		t.Errorf("sizes of queries over UDP: %+v; want 8 of at most 64 octets", sizes)
	}
	if d := got.Duration[0]; d.Count != 7 || d.Sum <= 0 || d.Buckets[5] != 7 {
		t.Errorf("durations over UDP: %+v; want 7, each more than 0 and below 5 s", d)
	}
	if len(got.ResponseSize) != 2 || got.ResponseSize[1].Transport != "tcp" || got.ResponseSize[1].Count != 1 {
		t.Errorf("sizes of responses: %+v; want one over TCP", got.ResponseSize)
	}
}

// TestConcurrentStats checks that concurrent updates of counters are not lost.
func TestConcurrentStats(t *testing.T) {
	stats := respond.NewStats(nil, 2)
	r, err := respond.New(respond.Config{Data: exampleDB(t), Stats: stats})
	if err != nil {
		t.Fatal(err)
	}
	packet := query(t, dnswire.QuerySpec{Name: "web.shop.svc.cluster.local", Type: dnswire.TypeA})
	const workers, each = 5, 200
	var wg sync.WaitGroup
	for seat := range workers {
		wg.Go(func() {
			w := r.NewWorker(seat)
			for range each {
				w.Respond(packet, respond.Client{}, make([]byte, 0, dnswire.MaxMessage))
			}
		})
	}
	wg.Wait()
	if got := stats.Counts().Requests; len(got) != 1 || got[0].Count != workers*each || got[0].Zone != "." {
		t.Errorf("requests: %+v, want %d", got, workers*each)
	}
}
