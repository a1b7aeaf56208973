package transfer

import (
	"fmt"
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

// tenThousand returns a zone of 10,000 Services with one port.
func tenThousand(b *testing.B) *zone.DB {
	b.Helper()
	db := newDB(b)
	db.SetHistoryLimits(zone.HistoryLimits{Changes: 100_000, Octets: 16 << 20})
	for i := range 10_000 {
		changeService(db, i, 0)
	}
	return db
}

// changeService changes the address of a Service.
func changeService(db *zone.DB, i, round int) {
	name := fmt.Sprintf("service-%d.namespace-%d.svc.cluster.local", i, i/50)
	put(db, name, func(b *zone.Builder) {
		b.Metadata = zone.Metadata{Exists: true, Below: &zone.EDE{Text: "no ready endpoint of this Service has that hostname or address"}}
		b.AddAddr(netip.AddrFrom4([4]byte{10, byte(96 + round%8), byte(i >> 8), byte(i)}))
		target, _ := b.AppendName(nil)
		rdata := dnswire.AppendSRV(nil, 0, 100, 80, target)
		b.Add(dnswire.TypeSRV, rdata)
		b.Add(dnswire.TypeSRV, rdata, "_http", "_tcp")
	})
}

// BenchmarkWhole collects and encodes a zone.
func BenchmarkWhole(b *testing.B) {
	db := tenThousand(b)
	octets := 0
	for b.Loop() {
		m, err := db.Version(apex)
		if err != nil {
			b.Fatal(err)
		}
		octets = 0
		for _, message := range encodeVersion(m, zone.WithMetadata) {
			octets += len(message)
		}
	}
	b.ReportMetric(float64(octets), "octets")
}

// BenchmarkVersion measures how long the writer is blocked.
func BenchmarkVersion(b *testing.B) {
	db := tenThousand(b)
	for b.Loop() {
		if _, err := db.Version(apex); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDifference encodes twenty changes, those of 200 ms at 100 per
// second.
func BenchmarkDifference(b *testing.B) {
	db := tenThousand(b)
	from := db.SOAs()[0].Serial
	for i := range 20 {
		changeService(db, 37*i, 1)
	}
	octets := 0
	for b.Loop() {
		d, err := db.Since(apex, from)
		if err != nil {
			b.Fatal(err)
		}
		octets = 0
		for _, message := range encodeDifference(d, zone.WithMetadata) {
			octets += len(message)
		}
	}
	b.ReportMetric(float64(octets), "octets")
}

// BenchmarkFollower serves that difference, signed, to one more secondary.
func BenchmarkFollower(b *testing.B) {
	db := tenThousand(b)
	from := db.SOAs()[0].Serial
	for i := range 20 {
		changeService(db, 37*i, 1)
	}
	s := newSender(b, db, nil)
	key := &dnswire.TSIGKey{Name: apex, Algorithm: dnswire.HMACSHA256, Secret: make([]byte, 32)}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			q := since("cluster.local", from)
			q.Detail, q.Exchange = zone.WithMetadata, key.NewExchange()
			follow(b, s, q)
		}
	})
}

func follow(b *testing.B, s *Sender, q *respond.TransferQuery) {
	b.Helper()
	messages, refusal := s.Begin(q)
	if refusal != nil {
		b.Error(refusal)
		return
	}
	for range messages(b.Context()) {
	}
}
