package kubezone_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/zone"
)

// BenchmarkLookup measures lookups of different names in the zone of 10,000 Services and
// as many Pods.
func BenchmarkLookup(b *testing.B) {
	store := syntheticCluster(10000, 4)
	const count = 10000
	store.Update(func(tx *cluster.Tx) {
		addr := netip.MustParseAddr("10.128.0.0")
		for i := range count {
			addr = addr.Next()
			tx.Put(&cluster.Pod{Key: cluster.Key{Namespace: fmt.Sprintf("ns-%d", i%100), Name: strconv.Itoa(i)}, IPs: []netip.Addr{addr}})
		}
	})
	c, _ := kubezone.New(kubezone.Config{Zones: []dnsname.Name{dnsname.MustParse("cluster.local")}, TTL: 5, Pods: kubezone.PodsVerified})
	db, err := c.NewDB()
	if err != nil {
		b.Fatal(err)
	}
	feed := store.Subscribe()
	defer feed.Close()
	c.Apply(store, feed, db)
	dashed := func(i int) string { return fmt.Sprintf("10-128-%d-%d", (i+1)/256, (i+1)%256) }
	for sort, of := range map[string]struct {
		typ  dnswire.Type
		name func(i int) string
		want zone.Outcome
	}{
		"Service": {dnswire.TypeA, func(i int) string { return fmt.Sprintf("service-%d.ns-%d.svc.cluster.local", i, i%100) }, zone.Found},
		"port":    {dnswire.TypeSRV, func(i int) string { return fmt.Sprintf("_http._tcp.service-%d.ns-%d.svc.cluster.local", i, i%100) }, zone.Found},
		"endpoint": {dnswire.TypeA, func(i int) string {
			return fmt.Sprintf("%s.service-%d.ns-%d.svc.cluster.local", dashed(i), i/4, i/4%100)
		}, zone.Found},
		"Pod":     {dnswire.TypeA, func(i int) string { return fmt.Sprintf("%s.ns-%d.pod.cluster.local", dashed(i), i%100) }, zone.Found},
		"address": {dnswire.TypePTR, func(i int) string { return fmt.Sprintf("%d.%d.128.10.in-addr.arpa", (i+1)%256, (i+1)/256) }, zone.Found},
		"network": {dnswire.TypePTR, func(i int) string { return fmt.Sprintf("%d.128.10.in-addr.arpa", i%40) }, zone.NoData},
		"denial":  {dnswire.TypeA, func(i int) string { return fmt.Sprintf("www%d.example.com.ns-%d.svc.cluster.local", i, i%100) }, zone.NXDomain},
	} {
		// Contiguous in memory, so that lookups do not wait for the names.
		var octets []byte
		names := make([][]byte, count)
		for i := range names {
			octets = append(octets, dnsname.MustParse(of.name(i*7919%count)).WireLabels()...)
		}
		for i := range names {
			n := len(dnsname.MustParse(of.name(i * 7919 % count)).WireLabels())
			names[i], octets = octets[:n:n], octets[n:]
		}
		b.Run(sort, func(b *testing.B) {
			scratch := new(zone.Scratch)
			i := 0
			for b.Loop() {
				i = (i + 1) % count
				if got := db.Lookup(scratch, names[i], of.typ).Outcome; got != of.want {
					b.Fatalf("Lookup(%q) = %v, want %v", names[i], got, of.want)
				}
			}
		})
	}
}
