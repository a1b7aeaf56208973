package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// bounds are what the server may use at most during an attack.
type bounds struct {
	memory     int // resident, in MiB
	goroutines int
	files      int
}

// attack runs do for the duration of an attack, while other clients look the names up. All
// lookups must succeed, the metrics must be there, and the server must stay within its bounds.
func (s *server) attack(t *testing.T, most bounds, names []string, do func(ctx context.Context)) {
	t.Helper()
	before := usage{s.resident(), s.goroutines(), s.openFiles()}
	ctx, stop := context.WithTimeout(t.Context(), *duration)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { s.observe(ctx) })
	results := make([]*lookups, len(names))
	for i, name := range names {
		results[i] = new(lookups)
		all.Go(func() { results[i].run(ctx, name) })
	}
	do(ctx)
	all.Wait()
	t.Logf("before: %s\nat most: %s\naccounts that refused: %s", before, s.most, s.refusals())
	if s.hasEnded() {
		t.Fatal("the server has ended")
	}
	if n := s.unseen.Load(); n > 0 {
		t.Errorf("%d requests for the metrics failed", n)
	}
	for i, r := range results {
		if r.failed.Load() > 0 || r.made.Load() == 0 {
			t.Errorf("%d of %d lookups of %s failed, the first with: %v", r.failed.Load(), r.made.Load(), names[i], r.first.Load())
		}
	}
	if s.most.memory>>20 > most.memory || s.most.goroutines > most.goroutines || s.most.files > most.files {
		t.Errorf("the server used %s; bounds: %d MiB, %d goroutines, %d files", s.most, most.memory, most.goroutines, most.files)
	}
}

// lookups are those of one client that is not the attacker.
type lookups struct {
	made, failed atomic.Int32
	first        atomic.Value // of the failures
}

// Names of the cluster and outside. Each lookup of a name with %d is of another name.
const (
	clusterName = "web.shop.svc.cluster.local."
	fastName    = "n%d.fast.example."
)

// run looks the name up 20 times a second until ctx is done, each time with a timeout of
// 2 s and no retry.
func (l *lookups) run(ctx context.Context, name string) {
	const interval, timeout = 50 * time.Millisecond, 2 * time.Second
	dialer := &net.Dialer{LocalAddr: &net.UDPAddr{IP: victim}}
	client := &dns.Client{Timeout: timeout, Dialer: dialer}
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		question := name
		if strings.Contains(name, "%d") {
			question = fmt.Sprintf(name, n)
		}
		all.Go(func() {
			l.made.Add(1)
			m, _, err := client.Exchange(new(dns.Msg).SetQuestion(question, dns.TypeA), serverAddr)
			if err == nil && (m.Rcode != dns.RcodeSuccess || len(m.Answer) == 0) {
				err = errors.New(dns.RcodeToString[m.Rcode])
			}
			if err != nil {
				l.failed.Add(1)
				l.first.CompareAndSwap(nil, err.Error())
			}
		})
	}
}

// serveUpstream answers every name at once, except those below slow., which it never
// answers.
func serveUpstream(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", upstreamAddr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.UDPConn).SetReadBuffer(8 << 20) // as much as the system allows
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		name := r.Question[0].Name
		if strings.HasSuffix(strings.ToLower(name), ".slow.") {
			return
		}
		m := new(dns.Msg).SetReply(r)
		m.RecursionAvailable = true
		if r.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 1),
			})
		}
		_ = w.WriteMsg(m)
	})
	upstream := &dns.Server{PacketConn: conn, Handler: handler}
	var serving sync.WaitGroup
	serving.Go(func() { _ = upstream.ActivateAndServe() })
	t.Cleanup(func() {
		_ = upstream.Shutdown()
		_ = conn.Close()
		serving.Wait() // the port is taken until the last read has ended
	})
}

// flood sends queries at a rate from several source addresses until ctx is done, evenly,
// so that sockets can receive them. It returns how many it has sent.
func flood(ctx context.Context, t *testing.T, perSecond int, sources []net.IP, query func(n int) *dns.Msg) (sent int) {
	t.Helper()
	var conns []net.Conn
	for _, source := range sources {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: source}}
		conn, err := dialer.DialContext(ctx, "udp", serverAddr)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer conn.Close()
		go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
		conns = append(conns, conn)
	}
	most := perSecond / 50 // at once, when this goroutine was held up
	for last, due := time.Now(), 0.0; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		now := time.Now()
		due = min(due+now.Sub(last).Seconds()*float64(perSecond), float64(most))
		last = now
		for ; due >= 1; due-- {
			packet, err := query(sent).Pack()
			if err != nil {
				t.Error(err)
				return sent
			}
			_, _ = conns[sent%len(conns)].Write(packet) // the server's buffer may be full
			sent++
		}
	}
	return sent
}

// addresses returns n source addresses of attackers.
func addresses(n int) (all []net.IP) {
	for i := range n {
		all = append(all, net.IPv4(127, 66, byte(i>>8), byte(i)))
	}
	return all
}

// victim is the address of the clients that are not attackers.
var victim = net.IPv4(127, 9, 9, 9)
