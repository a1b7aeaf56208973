package respond_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

var client = respond.Client{Addr: netip.MustParseAddr("192.0.2.1")}

// exampleDB is a cluster of one Service of each sort.
func exampleDB(tb testing.TB) *zone.DB {
	tb.Helper()
	c, err := kubezone.New(kubezone.Config{
		Zones: []dnsname.Name{dnsname.MustParse("cluster.local")}, TTL: 5, Pods: kubezone.PodsInsecure,
	})
	if err != nil {
		tb.Fatal(err)
	}
	db, err := c.NewDB()
	if err != nil {
		tb.Fatal(err)
	}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		tx.Put(&cluster.Namespace{Name: "shop"})
		http := []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}
		tx.Put(&cluster.Service{
			Key: cluster.Key{Namespace: "shop", Name: "web"}, Ports: http,
			ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")},
		})
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "db"}, Headless: true})
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "alias"}, ExternalName: "web.shop.svc.cluster.local"})
		slice := &cluster.EndpointSlice{Key: cluster.Key{Namespace: "shop", Name: "db-1"}, Service: "db", AddressType: cluster.IPv4, Ports: http}
		for i := range 20 {
			slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{
				Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(i)}), Ready: true, Hostname: fmt.Sprintf("db-%d", i),
			})
		}
		tx.Put(slice)
	})
	feed := store.Subscribe()
	defer feed.Close()
	c.Apply(store, feed, db)
	return db
}

func newWorker(tb testing.TB, cfg respond.Config) *respond.Worker {
	tb.Helper()
	r, err := respond.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return r.NewWorker(0)
}

// respondNow gives the answer, which takes no time.
func respondNow(w *respond.Worker, packet []byte, client respond.Client) []byte {
	answer, _ := w.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
	return answer
}

func query(tb testing.TB, q dnswire.QuerySpec) []byte {
	tb.Helper()
	packet, err := dnswire.NewQuery(q)
	if err != nil {
		tb.Fatal(err)
	}
	return packet
}

// questions are one of each way through the pipeline that a client takes often.
var questions = map[string]dnswire.QuerySpec{
	"A":               {Name: "web.shop.svc.cluster.local", Type: dnswire.TypeA},
	"A in mixed case": {Name: "WEB.Shop.svc.cluster.local", Type: dnswire.TypeA},
	"AAAA":            {Name: "web.shop.svc.cluster.local", Type: dnswire.TypeAAAA},
	"A of 20":         {Name: "db.shop.svc.cluster.local", Type: dnswire.TypeA},
	"SRV":             {Name: "_http._tcp.web.shop.svc.cluster.local", Type: dnswire.TypeSRV},
	"SRV of 20":       {Name: "_http._tcp.db.shop.svc.cluster.local", Type: dnswire.TypeSRV},
	"SRV and glue":    {Name: "_http._tcp.db.shop.svc.cluster.local", Type: dnswire.TypeSRV, UDPSize: 4096},
	"PTR":             {Name: "1.0.96.10.in-addr.arpa", Type: dnswire.TypePTR},
	"CNAME":           {Name: "alias.shop.svc.cluster.local", Type: dnswire.TypeA},
	"other spelling":  {Name: "10-244-0-3.db.shop.svc.cluster.local", Type: dnswire.TypeA},
	"insecure pod":    {Name: "10-1-2-3.shop.pod.cluster.local", Type: dnswire.TypeA},
	"NODATA":          {Name: "web.shop.svc.cluster.local", Type: dnswire.TypeTXT},
	"NODATA at ENT":   {Name: "shop.svc.cluster.local", Type: dnswire.TypeA},
	"NXDOMAIN":        {Name: "www.example.com.shop.svc.cluster.local", Type: dnswire.TypeA},
	"REFUSED":         {Name: "www.example.com", Type: dnswire.TypeA},
	"truncated":       {Name: "_http._tcp.db.shop.svc.cluster.local", Type: dnswire.TypeSRV, UDPSize: 512},
}

// TestRespondAllocatesNothing checks complete answers, with and without EDNS, with a
// cookie, an NSID and an Extended DNS Error.
func TestRespondAllocatesNothing(t *testing.T) {
	worker := newWorker(t, respond.Config{
		Data: exampleDB(t), NSID: "edge-7", TCPIdle: time.Second, CookieSecrets: []respond.CookieSecret{{1}},
	})
	buf := make([]byte, 0, dnswire.MaxMessage)
	for claim, q := range questions {
		for _, size := range []uint16{0, 1232} {
			if q.UDPSize == 0 && size > 0 {
				q.UDPSize = size
				q.Options = map[dnswire.OptionCode][]byte{dnswire.OptionNSID: nil, dnswire.OptionCookie: []byte("12345678")}
			}
			packet := query(t, q)
			allocs := testing.AllocsPerRun(100, func() {
				if answer, _ := worker.Respond(packet, client, buf); answer == nil {
					t.Errorf("Respond(%s) = nil", claim)
				}
			})
			if allocs != 0 {
				t.Errorf("%s (UDP size %d): %v allocations, want 0", claim, q.UDPSize, allocs)
			}
		}
	}
}

// TestZonesWithWildcardsAllocateNothing checks the answers of zones with wildcards and
// delegations.
func TestZonesWithWildcardsAllocateNothing(t *testing.T) {
	apex := dnsname.MustParse("corp.example")
	local, err := localzone.New(localzone.Config{
		Sources: []localzone.Source{{Apex: apex, Text: `
@ SOA ns admin 1 2 3 4 5
www A 192.0.2.1
alias CNAME www
*.apps A 192.0.2.2
*.links CNAME www
lab NS ns.lab
ns.lab A 192.0.2.3
_x._tcp SRV 0 0 80 www
`}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	db, err := zone.NewWithWildcards(nil, local.SOAs())
	if err != nil {
		t.Fatal(err)
	}
	local.Publish(db)
	whole := respond.Config{Data: db}
	view := respond.View{Zones: []dnsname.Name{apex}}
	for claim, cfg := range map[string]respond.Config{"the whole": whole, "a view": view.Config(whole)} {
		t.Run(claim, func(t *testing.T) { wantNoAllocations(t, newWorker(t, cfg)) })
	}
}

func wantNoAllocations(t *testing.T, worker *respond.Worker) {
	t.Helper()
	buf := make([]byte, 0, dnswire.MaxMessage)
	for name, want := range map[string]dnswire.RCode{
		"www": dnswire.NoError, "alias": dnswire.NoError, "x.apps": dnswire.NoError, "x.links": dnswire.NoError,
		"x.lab": dnswire.NoError, "none": dnswire.NXDomain, "x.none": dnswire.NXDomain, "apps": dnswire.NoError,
	} {
		packet := query(t, dnswire.QuerySpec{Name: name + ".corp.example", Type: dnswire.TypeA})
		allocs := testing.AllocsPerRun(100, func() {
			answer, _ := worker.Respond(packet, client, buf)
			if got := dnswire.RCode(answer[3] & 0xf); got != want {
				t.Errorf("Respond(%s) = %s, want %s", name, got, want)
			}
		})
		if allocs != 0 {
			t.Errorf("Respond(%s): %v allocations, want 0", name, allocs)
		}
	}
}

// BenchmarkRespond is the whole path of an answer, without sockets.
func BenchmarkRespond(b *testing.B) { benchmarkRespond(b, benchmarkConfig(b)) }

func benchmarkConfig(b *testing.B) respond.Config {
	b.Helper()
	stats := respond.NewStats([]dnsname.Name{dnsname.MustParse("cluster.local")}, 4)
	return respond.Config{Data: exampleDB(b), UDPSize: 4096, Stats: stats}
}

func benchmarkRespond(b *testing.B, cfg respond.Config) {
	b.Helper()
	worker := newWorker(b, cfg)
	buf := make([]byte, 0, dnswire.MaxMessage)
	for claim, q := range questions {
		packet := query(b, q)
		b.Run(claim, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				worker.Respond(packet, client, buf)
			}
		})
	}
}

// BenchmarkTogether is what an answer costs a processor while the others answer,
// too: as much as alone, since they share nothing that is written (go test
// -cpu 1,2,4).
func BenchmarkTogether(b *testing.B) {
	cluster := dnsname.MustParse("cluster.local")
	r, err := respond.New(respond.Config{Data: exampleDB(b), Stats: respond.NewStats([]dnsname.Name{cluster}, runtime.GOMAXPROCS(0))})
	if err != nil {
		b.Fatal(err)
	}
	packet := query(b, questions["A of 20"])
	var seats atomic.Int32
	b.RunParallel(func(pb *testing.PB) {
		worker := r.NewWorker(int(seats.Add(1)) - 1)
		buf := make([]byte, 0, dnswire.MaxMessage)
		for pb.Next() {
			worker.Respond(packet, client, buf)
		}
	})
}

// silent is data that nobody set an outcome for.
type silent struct{}

func (silent) Lookup(*zone.Scratch, []byte, dnswire.Type) zone.Answer { return zone.Answer{} }

func (silent) Addresses(*zone.Scratch, []byte) (a, aaaa dnswire.RRset) { return a, aaaa }

func TestUnsetOutcomeIsServFail(t *testing.T) {
	worker := newWorker(t, respond.Config{Data: silent{}})
	wire, _ := worker.Respond(query(t, questions["A"]), client, make([]byte, 0, dnswire.MaxMessage))
	m, err := dnswire.ParseMessage(wire)
	if err != nil || m.Status != "SERVFAIL" {
		t.Errorf("Respond with an answer of the zero outcome = %v, %v; want SERVFAIL", m, err)
	}
}

// TestCookies begins with the example of RFC 9018, appendix A.4, and covers an old
// secret that is still valid and a client on IPv6.
func TestCookies(t *testing.T) {
	now := time.Unix(1559741961, 0)
	secrets := []respond.CookieSecret{
		respond.CookieSecret(hexBytes(t, "445536bcd2513298075a5d379663c962")),
		respond.CookieSecret(hexBytes(t, "dd3bdf9344b678b185a6f5cb60fca715")),
	}
	six := respond.Client{Addr: netip.MustParseAddr("2001:db8:220:1:59de:d0f4:8769:82b8")}
	const (
		old   = "22681ab97d52c298010000005cf7c57926556bd0934c72f8"
		fresh = "22681ab97d52c298010000005cf7c609a6bb79d16625507a"
	)
	ago := func(d time.Duration) time.Time { return now.Add(d) }
	for claim, c := range map[string]struct {
		at           time.Time
		client       respond.Client
		secrets      []respond.CookieSecret
		asked, reply string
	}{
		"a cookie of the first secret is made": {now, six, secrets, old[:16], fresh},
		"a cookie of the old secret is good":   {now, six, secrets, old, old},
		"without the old secret it is foreign": {now, six, secrets[:1], old, fresh},
		"another client's is foreign":          {now, client, secrets, fresh, ""},
		"after half an hour it is made anew":   {ago(31 * time.Minute), six, secrets, fresh, ""},
		"from the near future it is good":      {ago(-4 * time.Minute), six, secrets, fresh, fresh},
		"from the far future it is not":        {ago(-6 * time.Minute), six, secrets, fresh, ""},
		"without secrets there is no cookie":   {now, six, nil, fresh, "none"},
	} {
		worker := newWorker(t, respond.Config{Data: silent{}, CookieSecrets: c.secrets, Now: func() time.Time { return c.at }})
		q := questions["A"]
		q.UDPSize, q.Options = 1232, map[dnswire.OptionCode][]byte{dnswire.OptionCookie: hexBytes(t, c.asked)}
		m, err := dnswire.ParseMessage(respondNow(worker, query(t, q), c.client))
		if err != nil {
			t.Fatal(err)
		}
		got, present := m.Options[dnswire.OptionCookie]
		switch {
		case c.reply == "none":
			if present {
				t.Errorf("%s: reply to %s = %s, want none", claim, c.asked, got)
			}
		case c.reply == "": // some other one
			if !present || got == c.asked {
				t.Errorf("%s: reply to %s = %q, want another", claim, c.asked, got)
			}
		case got != c.reply:
			t.Errorf("%s: reply to %s = %s, want %s", claim, c.asked, got, c.reply)
		}
	}
}

func hexBytes(t *testing.T, s string) []byte {
	t.Helper()
	var b []byte
	if _, err := fmt.Sscanf(s, "%x", &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBadConfig(t *testing.T) {
	for claim, cfg := range map[string]respond.Config{
		"a UDP size below what every client takes": {UDPSize: 511},
		"a UDP size above any message":             {UDPSize: 65536},
		"an NSID that leaves no room":              {NSID: string(make([]byte, 129))},
	} {
		if _, err := respond.New(cfg); err == nil {
			t.Errorf("%s: New(%+v) = nil error", claim, cfg)
		}
	}
}

// TestRotation checks that each record of an RRset comes first in turn, with alternating
// A and AAAA queries as resolvers send them.
func TestRotation(t *testing.T) {
	worker := newWorker(t, respond.Config{Data: exampleDB(t), Stats: respond.NewStats(nil, 1)})
	packets := [][]byte{query(t, questions["A of 20"]), query(t, dnswire.QuerySpec{Name: "db.shop.svc.cluster.local", Type: dnswire.TypeAAAA})}
	first := make(map[string]int)
	for range 40 {
		for i, packet := range packets {
			m, err := dnswire.ParseMessage(respondNow(worker, packet, client))
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first[m.Answer[0].Data]++
			}
		}
	}
	want := make(map[string]int)
	for i := range 20 {
		want[fmt.Sprintf("10.244.0.%d", i)] = 2
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("first records of 40 answers (-want +got):\n%s", diff)
	}
}

// FuzzRespond checks that no packet causes a panic, and that each response is valid and
// matches its query.
func FuzzRespond(f *testing.F) {
	worker := newWorker(f, respond.Config{Data: exampleDB(f), NSID: "edge-7", CookieSecrets: []respond.CookieSecret{{1}}, TCPIdle: time.Second})
	for _, q := range questions {
		f.Add(query(f, q), uint8(0))
		q.UDPSize = 4096
		q.Options = map[dnswire.OptionCode][]byte{
			dnswire.OptionNSID: nil, dnswire.OptionCookie: []byte("12345678"), dnswire.OptionPadding: nil, dnswire.OptionKeepalive: nil,
		}
		f.Add(query(f, q), uint8(1))
		f.Add(query(f, q), uint8(2))
	}
	buf := make([]byte, 0, dnswire.MaxMessage)
	f.Fuzz(func(t *testing.T, packet []byte, transport uint8) {
		from := respond.Client{Addr: client.Addr, Transport: respond.Transport(transport % 3)}
		wire, _ := worker.Respond(packet, from, buf)
		if len(packet) < dnswire.HeaderLen || packet[2]&0x80 != 0 {
			if wire != nil {
				t.Fatalf("Respond(%x) = %x, want silence", packet, wire)
			}
			return
		}
		m, err := dnswire.ParseMessage(wire)
		if err != nil {
			t.Fatalf("Respond(%x) = %x: %v", packet, wire, err)
		}
		if from.Transport == respond.UDP && len(wire) > respond.DefaultUDPSize {
			t.Fatalf("Respond(%x): %d octets over UDP", packet, len(wire))
		}
		if string(wire[:2]) != string(packet[:2]) || wire[2]&0x80 == 0 || m.Status == "SERVFAIL" {
			t.Fatalf("Respond(%x) = %x: not a response, or the outcome was never set", packet, wire)
		}
	})
}
