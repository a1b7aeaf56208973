package fqdn

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/budget"
)

// answerer adapts a respond.Worker to dnsserver.
type answerer struct{ *respond.Worker }

func (a answerer) Respond(packet []byte, client respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	answer, deferred := a.Worker.Respond(packet, client, buf)
	if deferred == nil {
		return answer, nil
	}
	return nil, deferred
}

// upstream answers for names below allowed.example with addresses made of the name, every
// other one through an alias.
func upstream(_ context.Context, _ forward.Upstream, query []byte) ([]byte, error) {
	q, m := new(dns.Msg), new(dns.Msg)
	if err := q.Unpack(query); err != nil {
		return nil, err
	}
	m.SetReply(q)
	m.Compress = true
	name := q.Question[0].Name
	h := fnv.New32()
	_, _ = io.WriteString(h, name)
	sum := h.Sum32()
	texts := []string{fmt.Sprintf("%s 60 A 198.%d.%d.%d", name, 18+sum>>24%2, byte(sum>>16), byte(sum>>8))}
	if sum%2 == 0 {
		texts = []string{name + " 60 CNAME to." + name, "to." + texts[0]}
	}
	for _, text := range texts {
		rr, err := dns.NewRR(text)
		if err != nil {
			return nil, err
		}
		m.Answer = append(m.Answer, rr)
	}
	return m.Pack()
}

// serve runs a DNS server that forwards everything, with a Gate.
func serve(t *testing.T, gate respond.Gate) netip.AddrPort {
	t.Helper()
	kept, err := cache.New(cache.Config{Size: 8 << 20, MaxTTL: 86400, MaxNegativeTTL: 60, Stale: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f, err := forward.New(forward.Config{
		Routes: []forward.Route{{
			Timeout: 4 * time.Second, Policy: forward.Sequential,
			Upstreams: []forward.Upstream{{Addr: netip.MustParseAddrPort("192.0.2.53:53")}},
		}},
		Cache: kept, Limits: budget.Limits{Total: 5000, PerSource: 5000}, StaleAfter: time.Second, Exchange: upstream,
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := zone.New()
	if err != nil {
		t.Fatal(err)
	}
	r, err := respond.New(respond.Config{Data: db, Upstreams: f, Gate: gate})
	if err != nil {
		t.Fatal(err)
	}
	server, err := dnsserver.Listen(t.Context(), dnsserver.Config{
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, MaxConnections: 100, MaxInFlight: 100,
		Idle: time.Minute, Log: slog.New(slog.DiscardHandler),
		NewAnswerer: func(seat int) dnsserver.Answerer { return answerer{r.NewWorker(seat)} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server.Addrs()[0]
}

// lookups is how many lookups TestLookupThenConnect makes; the variable LOOKUPS changes it.
func lookups(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LOOKUPS")
	if text == "" {
		return 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLookupThenConnect: the addresses in each reply of the DNS server are in the kernel
// when the reply arrives, over UDP and TCP, from upstreams and from the cache.
func TestLookupThenConnect(t *testing.T) {
	t.Parallel()
	k := newKernel(allowed)
	k.delay = 100 * time.Microsecond
	s := lookUp(t, k, func(addr netip.Addr) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.sets[allowed][addr].IsZero() {
			return fmt.Errorf("%s is not in the kernel", addr)
		}
		return nil
	})
	if s.Held == 0 {
		t.Errorf("no answer waited: %+v", s)
	}
}

// allowed is the set of names below allowed.example.
const allowed = "names"

// lookUp looks names up with many clients at once, and connects to the addresses. None of
// that may fail.
func lookUp(t *testing.T, programmer Programmer, connect func(netip.Addr) error) Stats {
	t.Helper()
	g := New(Config{
		Programmer: programmer, Namespace: func(netip.Addr) string { return "shop" }, Log: slog.New(slog.DiscardHandler),
		HoldLimit: time.Minute, Grace: time.Minute, MaxElements: 1 << 20, MaxPerSet: 1 << 20, MaxPerNamespace: 1 << 20,
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	defer running.Wait()
	defer stop()
	g.Update(shops(map[string][]string{allowed: {"*.allowed.example"}}))
	server := serve(t, g)
	var next, missed atomic.Int64
	total := int64(lookups(t))
	var group sync.WaitGroup
	const clients = 16
	for c := range clients {
		group.Go(func() {
			network := "udp"
			if c%4 == 0 {
				network = "tcp"
			}
			conn, err := net.Dial(network, server.String())
			if err != nil {
				t.Error(err)
				return
			}
			client := &dns.Conn{Conn: conn}
			defer client.Close()
			for i := next.Add(1); i <= total && !t.Failed(); i = next.Add(1) {
				// Each name is looked up three times in a row, by several clients at once.
				addrs, err := ask(client, fmt.Sprintf("n%d.allowed.example.", i/3))
				if err != nil {
					t.Errorf("lookup %d over %s: %v", i, network, err)
					return
				}
				for _, addr := range addrs {
					if connect(addr) != nil {
						missed.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	s := g.Stats()
	t.Logf("%d lookups: %+v", total, s)
	if n := missed.Load(); n > 0 || s.Late > 0 {
		t.Errorf("of %d lookups, %d addresses were not in the kernel when the reply arrived; %+v", total, n, s)
	}
	return s
}

// ask looks up the IPv4 addresses of a name.
func ask(client *dns.Conn, name string) (addrs []netip.Addr, err error) {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	m.SetEdns0(dnswire.MinUDPSize, false)
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if err := client.WriteMsg(m); err != nil {
		return nil, err
	}
	reply, err := client.ReadMsg()
	if err != nil {
		return nil, err
	}
	for _, rr := range reply.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			addrs = append(addrs, addr)
		}
	}
	if reply.Id != m.Id || len(addrs) != 1 {
		return nil, fmt.Errorf("%s: want one address of query %d:\n%v", name, m.Id, reply)
	}
	return addrs, nil
}

// TestServerAnswersWhileAnswersWait: other queries do not wait for the kernel.
func TestServerAnswersWhileAnswersWait(t *testing.T) {
	t.Parallel()
	k := newKernel() // it has no set
	g := start(t, k, Config{HoldLimit: time.Minute})
	g.cfg.Namespace = func(netip.Addr) string { return "shop" }
	g.Update(shops(map[string][]string{"names": {"*.allowed.example"}}))
	server := serve(t, g)
	slow, err := net.Dial("udp", server.String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	for i := range 100 {
		packet, err := dnswire.NewQuery(dnswire.QuerySpec{
			Name: fmt.Sprintf("n%d.allowed.example", i), Type: dnswire.TypeA, Flags: dnswire.FlagRD,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slow.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("udp", server.String())
	if err != nil {
		t.Fatal(err)
	}
	client := &dns.Conn{Conn: conn}
	defer client.Close()
	began := time.Now()
	for range 100 {
		if _, err := ask(client, "www.other.example."); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("100 other queries took %v", d)
	}
	k.change("names", nil) // the others leave
}
