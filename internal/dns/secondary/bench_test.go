package secondary

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/transfer"
)

const (
	benchServices  = 10_000
	benchEndpoints = 3
)

// largePrimary has 10,000 Services with 3 endpoints each.
func largePrimary(b *testing.B) *primary {
	b.Helper()
	p := newPrimary(b, "a.ns.dns.cluster.local")
	p.update(func(tx *cluster.Tx) {
		for i := range benchServices {
			putService(tx, fmt.Sprintf("service-%d", i), benchEndpoints, 0)
		}
	})
	return p
}

// serveAll serves p to any client on this machine.
func serveAll(b *testing.B, p *primary) forward.Upstream {
	b.Helper()
	send := sender(b, p, transfer.Permission{Clients: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, nil)
	s, _ := listen(b, respond.Config{Data: p.db, Transfers: send}, nil)
	return forward.Upstream{Addr: s.Addrs()[0], Transport: forward.TCP}
}

func quietReplica(b *testing.B, from forward.Upstream) *Secondary {
	b.Helper()
	cfg := testConfig()
	cfg.Servers, cfg.Log = []forward.Upstream{from}, slog.New(slog.DiscardHandler)
	r, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// BenchmarkWhole measures a complete AXFR: octets on the wire and memory of the
// copy.
func BenchmarkWhole(b *testing.B) {
	from := serveAll(b, largePrimary(b))
	for b.Loop() {
		before := heapOf()
		r := quietReplica(b, from)
		began := time.Now()
		octets := fetchAll(b, r, from)
		b.ReportMetric(time.Since(began).Seconds(), "s/copy")
		b.ReportMetric(float64(octets), "octets")
		b.ReportMetric(float64(heapOf()-before), "heap-octets")
		runtime.KeepAlive(r)
	}
}

func heapOf() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fetchAll refreshes all zones and returns the octets received.
func fetchAll(b *testing.B, r *Secondary, from forward.Upstream) uint64 {
	b.Helper()
	f := session{Secondary: r, server: from}
	defer f.close()
	for _, z := range r.zones {
		if err := f.refresh(context.Background(), z); err != nil {
			b.Fatal(err)
		}
	}
	return r.Status().Counters.Octets
}

// BenchmarkChanges applies 1,000 changes of Services, 200 per IXFR as with a
// NOTIFY every 200 ms, to a copy of 10,000: the processor time of both sides.
func BenchmarkChanges(b *testing.B) {
	p := largePrimary(b)
	from := serveAll(b, p)
	r := quietReplica(b, from)
	f := session{Secondary: r, server: from}
	defer f.close()
	fetchAll(b, r, from)
	var ours time.Duration
	n := 0
	for b.Loop() {
		for range 5 {
			for range 200 {
				n++
				p.update(func(tx *cluster.Tx) {
					putService(tx, fmt.Sprintf("service-%d", n*7919%benchServices), 1+n%benchEndpoints, 0)
				})
			}
			for _, z := range r.zones {
				soa := z.soa
				began := time.Now()
				got, err := f.request(context.Background(), z, &soa)
				if err != nil {
					b.Fatal(err)
				}
				fetched := time.Now()
				if err := f.apply(z, got); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(fetched)
				f.done(z, got, began, time.Time{})
			}
		}
	}
	b.ReportMetric(ours.Seconds()/float64(n)*1e6, "us-applying/change")
	b.ReportMetric(float64(r.Status().Counters.IXFR)/float64(n), "ixfr/change")
}

// BenchmarkProcess copies from the server at PORTOLAN_SERVER and reports the
// resources of the process.
func BenchmarkProcess(b *testing.B) {
	server := os.Getenv("PORTOLAN_SERVER")
	if server == "" {
		b.Skip("PORTOLAN_SERVER is not set")
	}
	from := forward.Upstream{Addr: netip.MustParseAddrPort(server), Transport: forward.TCP}
	for b.Loop() {
		r := quietReplica(b, from)
		began := time.Now()
		octets := fetchAll(b, r, from)
		took := time.Since(began)
		b.ReportMetric(rss(b), "rss-at-once")
		debug.FreeOSMemory()
		b.ReportMetric(rss(b), "rss-settled")
		b.ReportMetric(took.Seconds(), "s/copy")
		b.ReportMetric(float64(octets), "octets")
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(used.Maxrss)*1024, "rss-most")
		runtime.KeepAlive(r)
	}
}

// rss returns the resident memory of the process, in octets.
func rss(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	var size, resident float64
	if _, err := fmt.Sscan(strings.TrimSpace(string(text)), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return resident * float64(os.Getpagesize())
}

// BenchmarkSave writes and reads the state file of 10,000 Services.
func BenchmarkSave(b *testing.B) {
	from := serveAll(b, largePrimary(b))
	r := quietReplica(b, from)
	r.cfg.File = b.TempDir() + "/copy"
	fetchAll(b, r, from)
	for b.Loop() {
		r.state.unsaved = true
		began := time.Now()
		r.save()
		b.ReportMetric(time.Since(began).Seconds(), "s/save")
		info, err := os.Stat(r.cfg.File)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size()), "octets")
		again := quietReplica(b, from)
		again.cfg.File = r.cfg.File
		began = time.Now()
		again.Restore()
		b.ReportMetric(time.Since(began).Seconds(), "s/restore")
	}
}
