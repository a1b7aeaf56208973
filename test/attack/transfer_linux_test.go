package attack

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Names of a key that may transfer zones, and of the zone.
const (
	transferKey  = "transfer.example."
	transferZone = "cluster.local."
)

// TestSignedTransfers asks for zones, and says that zones have changed, with signatures that
// are wrong in each way of badSignatures. No zone is transferred.
func TestSignedTransfers(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("c2l4dGVlbiBvciBtb3JlIG9jdGV0cw=="), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, fmt.Sprintf("dns:\n  listen: ['%s']\n  transfer:\n    allow: [{key: %s}]\n    keys: [{name: %s, algorithm: hmac-sha256, secretFile: %s}]\n",
		serverAddr, transferKey, transferKey, secret))
	s.attack(t, bounds{100, 1000, 800}, []string{clusterName}, func(ctx context.Context) {
		var all sync.WaitGroup
		all.Go(func() { flood(ctx, t, 3000, addresses(5), badlySigned) })
		for _, source := range addresses(8) {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					askBadlySigned(ctx, t, source, n)
				}
			})
		}
		all.Wait()
	})
}

// askBadlySigned sends some queries over one connection and reads the responses.
func askBadlySigned(ctx context.Context, t *testing.T, source net.IP, n int) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: source}, Timeout: time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", serverAddr)
	if err != nil {
		return
	}
	defer raw.Close()
	conn := &dns.Conn{Conn: raw}
	const queries = 20
	for i := range queries {
		if err := conn.WriteMsg(badlySigned(n*queries + i)); err != nil {
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		m, err := conn.ReadMsg()
		if err != nil {
			return // the query was malformed
		}
		if len(m.Answer) > 0 {
			t.Errorf("a query that is not signed rightly was answered:\n%s", m)
		}
	}
}

// badlySigned is a query for a transfer or a NOTIFY, in turn, signed wrongly in a random
// way.
func badlySigned(n int) *dns.Msg {
	m := new(dns.Msg)
	switch n % 3 {
	case 0:
		m.SetAxfr(transferZone)
	case 1:
		m.SetIxfr(transferZone, uint32(n), "ns.", "root.")
	default:
		m.SetNotify(transferZone)
	}
	tsig := &dns.TSIG{
		Hdr:        dns.RR_Header{Name: transferKey, Rrtype: dns.TypeTSIG, Class: dns.ClassANY},
		Algorithm:  dns.HmacSHA256,
		TimeSigned: uint64(time.Now().Unix()), Fudge: 300, OrigId: m.Id,
		MACSize: 32, MAC: hex.EncodeToString(random(32)),
	}
	changes := badSignatures()
	changes[rand.IntN(len(changes))](m, tsig)
	m.Extra = append(m.Extra, tsig)
	return m
}

func badSignatures() []func(m *dns.Msg, tsig *dns.TSIG) {
	length := func(n int) func(*dns.Msg, *dns.TSIG) {
		return func(_ *dns.Msg, tsig *dns.TSIG) {
			tsig.MACSize, tsig.MAC = uint16(n), hex.EncodeToString(random(n))
		}
	}
	return []func(m *dns.Msg, tsig *dns.TSIG){
		func(*dns.Msg, *dns.TSIG) {},
		length(0), length(1), length(10), length(16), length(31), length(33), length(400),
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Hdr.Name = "other.example." },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Hdr.Name = "." },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Hdr.Class = dns.ClassINET },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Algorithm = dns.HmacMD5 },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Algorithm = dns.HmacSHA512 },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Algorithm = "none." },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.TimeSigned = 0 },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.TimeSigned = 1<<48 - 1 },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Fudge = 0 },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Fudge = 65_535 },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.OrigId++ },
		func(_ *dns.Msg, tsig *dns.TSIG) { tsig.Error = uint16(rand.IntN(65_536)) },
		func(m *dns.Msg, tsig *dns.TSIG) { m.Extra = append(m.Extra, dns.Copy(tsig)) },
		func(m *dns.Msg, tsig *dns.TSIG) { m.Answer = append(m.Answer, dns.Copy(tsig)) },
		func(m *dns.Msg, _ *dns.TSIG) { m.SetEdns0(4096, true) },
	}
}
