package kubezone_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/zone"
)

// sequences is the number of random sequences of changes per run.
const sequences = 2500

// TestIncrementalEqualsFull checks that after any changes, coalesced in any way, the zone
// equals one compiled from the final state.
func TestIncrementalEqualsFull(t *testing.T) {
	for seed := range uint64(sequences) {
		r := &randomCluster{Rand: rand.New(rand.NewPCG(seed, 1))}
		compiler := newCompiler(t, r.config())
		store := cluster.NewStore()
		feed := store.Subscribe()
		db := newDB(t, compiler)
		for range 4 + r.IntN(12) {
			store.Update(func(tx *cluster.Tx) {
				for range 1 + r.IntN(3) {
					r.randomChange(tx)
				}
			})
			if r.IntN(2) == 0 { // else the consumer is busy
				compiler.Apply(store, feed, db)
			}
		}
		compiler.Apply(store, feed, db)
		feed.Close()
		if diff := cmp.Diff(dump(compileFull(t, compiler, store)), dump(db)); diff != "" {
			t.Fatalf("seed %d: incremental result differs from full compile (-full +incremental):\n%s", seed, diff)
		}
	}
}

// TestDeletingAllObjectsEmptiesTheZone checks that after all objects are deleted, neither
// their names nor the index of names contains them.
func TestDeletingAllObjectsEmptiesTheZone(t *testing.T) {
	r := &randomCluster{Rand: rand.New(rand.NewPCG(7, 7))}
	compiler := newCompiler(t, r.config())
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	want := dump(compileFull(t, compiler, store))
	feed := store.Subscribe()
	defer feed.Close()
	db := newDB(t, compiler)
	for range 300 {
		store.Update(r.randomChange)
		compiler.Apply(store, feed, db)
	}
	store.Update(r.deleteAll)
	compiler.Apply(store, feed, db)
	if diff := cmp.Diff(want, dump(db)); diff != "" {
		t.Errorf("after deleting everything (-empty +now):\n%s", diff)
	}
}

func newCompiler(tb testing.TB, cfg kubezone.Config) *kubezone.Compiler {
	tb.Helper()
	c, err := kubezone.New(cfg)
	if err != nil {
		tb.Fatalf("New(%+v): %v", cfg, err)
	}
	return c
}

func newDB(tb testing.TB, c *kubezone.Compiler) *zone.DB {
	tb.Helper()
	db, err := c.NewDB()
	if err != nil {
		tb.Fatal(err)
	}
	return db
}

func compileFull(tb testing.TB, c *kubezone.Compiler, store *cluster.Store) *zone.DB {
	tb.Helper()
	feed := store.Subscribe()
	defer feed.Close()
	db := newDB(tb, c)
	c.Apply(store, feed, db)
	return db
}

// dump returns the visible contents of a zone except for serials, one line per RRset.
func dump(db *zone.DB) []string {
	var lines []string
	for _, e := range db.Entries() {
		lines = append(lines, fmt.Sprintf("%s exists=%v children=%d %d", e.Name, e.Exists, e.Metadata.Children, e.Metadata.ChildTTL))
		for _, set := range e.Sets {
			records, err := set.Records(e.Name)
			if err != nil {
				lines = append(lines, err.Error())
			}
			for _, r := range records {
				lines = append(lines, r.String())
			}
		}
		for i, n := range []*zone.EDE{e.Metadata.EDE, e.Metadata.Below, e.Metadata.Underscored} {
			if n != nil {
				lines = append(lines, fmt.Sprintf("%s note %d: %+v", e.Name, i, *n))
			}
		}
	}
	return lines
}

// randomCluster makes random changes to a small set of objects, so that they often
// concern the same names.
type randomCluster struct{ *rand.Rand }

func pick[T any](r *randomCluster, from ...T) T { return from[r.IntN(len(from))] }

func (r *randomCluster) config() kubezone.Config {
	cfg := kubezone.Config{
		Zones:            []dnsname.Name{dnsname.MustParse("cluster.local")},
		TTL:              uint32(r.IntN(10)),
		Pods:             pick(r, kubezone.PodsVerified, kubezone.PodsVerified, kubezone.PodsInsecure, kubezone.PodsDisabled),
		EndpointPodNames: r.IntN(3) == 0,
		DNSService:       cluster.Key{Namespace: "a", Name: "one"},
		DNSAddresses:     []netip.Addr{netip.MustParseAddr("192.0.2.53")},
	}
	if r.IntN(3) == 0 {
		cfg.Zones = append(cfg.Zones, dnsname.MustParse("corp.example"))
	}
	if r.IntN(3) == 0 {
		cfg.Multicluster = dnsname.MustParse("clusterset.local")
	}
	if r.IntN(2) == 0 {
		cfg.External = kubezone.External{
			Zones:     []dnsname.Name{dnsname.MustParse("out.example"), dnsname.MustParse("two.example")},
			Ingresses: r.IntN(2) == 0, Gateways: r.IntN(2) == 0, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		}
	}
	if r.IntN(3) == 0 {
		cfg.ReverseRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	return cfg
}

func (r *randomCluster) key() cluster.Key {
	return cluster.Key{Namespace: pick(r, "a", "b"), Name: pick(r, "one", "two", "three")}
}

func (r *randomCluster) addr() netip.Addr {
	return netip.MustParseAddr(pick(r, "10.0.0.1", "10.0.0.2", "10.0.0.3", "192.0.2.7", "fd00::1", "fd00::2"))
}

func (r *randomCluster) randomChange(tx *cluster.Tx) {
	switch r.IntN(18) {
	case 0:
		tx.Put(&cluster.Namespace{Name: pick(r, "a", "b")})
	case 1:
		tx.Delete(cluster.KindNamespace, cluster.Key{Name: pick(r, "a", "b")})
	case 2, 3:
		tx.Put(r.service())
	case 4:
		tx.Delete(cluster.KindService, r.key())
	case 5, 6:
		tx.Put(r.slice())
	case 7:
		tx.Delete(cluster.KindEndpointSlice, r.key())
	case 8:
		tx.Put(&cluster.Pod{Key: r.key(), IPs: r.addrs(), Finished: r.IntN(4) == 0})
	case 9:
		tx.Delete(cluster.KindPod, r.key())
	case 10:
		tx.Put(&cluster.ServiceImport{Key: r.key(), Headless: r.IntN(2) == 0, IPs: r.addrs(), Ports: r.ports()})
	case 11:
		tx.Delete(cluster.KindServiceImport, r.key())
	case 12, 13:
		tx.Put(&cluster.Frontend{Kind: pick(r, cluster.KindIngress, cluster.KindGateway), Key: r.key(), External: *r.external()})
	case 14:
		tx.Delete(pick(r, cluster.KindIngress, cluster.KindGateway), r.key())
	case 15:
		tx.Put(&cluster.Route{Kind: cluster.KindHTTPRoute, Key: r.key(), Hosts: r.hosts(), Gateways: []cluster.Key{r.key()}})
	case 16:
		tx.Delete(cluster.KindHTTPRoute, r.key())
	case 17:
		tx.SetFreshness(cluster.Live, pick(r, cluster.Kinds()...), pick(r, cluster.Kinds()...))
	}
}

func (r *randomCluster) deleteAll(tx *cluster.Tx) {
	for _, ns := range []string{"a", "b"} {
		tx.Delete(cluster.KindNamespace, cluster.Key{Name: ns})
		for _, name := range []string{"one", "two", "three"} {
			key := cluster.Key{Namespace: ns, Name: name}
			tx.Delete(cluster.KindService, key)
			tx.Delete(cluster.KindEndpointSlice, key)
			tx.Delete(cluster.KindPod, key)
			tx.Delete(cluster.KindServiceImport, key)
			tx.Delete(cluster.KindIngress, key)
			tx.Delete(cluster.KindGateway, key)
			tx.Delete(cluster.KindHTTPRoute, key)
		}
	}
}

func (r *randomCluster) addrs() []netip.Addr {
	var addrs []netip.Addr
	for range r.IntN(3) {
		addrs = append(addrs, r.addr())
	}
	return addrs
}

func (r *randomCluster) hosts() (hosts []string) {
	for range r.IntN(3) {
		hosts = append(hosts, pick(r, "x.out.example", "*.out.example", "one.two.example", "out.example", "y.two.example",
			"ns.dns.out.example", "elsewhere.example", "_x.out.example", "not..a.name"))
	}
	return hosts
}

func (r *randomCluster) external() *cluster.External {
	e := &cluster.External{Addresses: r.addrs(), Hosts: r.hosts()}
	if r.IntN(3) == 0 {
		e.Targets = []string{pick(r, "lb.example", "x.out.example", "not..a.name")}
	}
	return e
}

func (r *randomCluster) service() *cluster.Service {
	s := &cluster.Service{Key: r.key(), Ports: r.ports(), PublishNotReady: r.IntN(4) == 0}
	if r.IntN(3) == 0 {
		s.External = r.external()
	}
	switch r.IntN(5) {
	case 0:
		s.ExternalName = pick(r, "example.com", "one.a.svc.cluster.local", "192.0.2.1", "not..a.name")
	case 1, 2:
		s.Headless = true
	default:
		s.ClusterIPs = r.addrs()
	}
	return s
}

func (r *randomCluster) ports() []cluster.Port {
	var ports []cluster.Port
	for range r.IntN(3) {
		ports = append(ports, cluster.Port{
			Name: pick(r, "", "http", "sql"), Protocol: pick(r, cluster.TCP, cluster.UDP), Number: uint16(pick(r, 0, 80, 443)),
		})
	}
	return ports
}

func (r *randomCluster) slice() *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{Key: r.key(), Service: pick(r, "one", "two", "three", ""), AddressType: cluster.IPv4, Ports: r.ports()}
	if r.IntN(3) == 0 {
		s.Import, s.Cluster = pick(r, "one", "two"), pick(r, "", "east", "west", "no.label")
	}
	for range r.IntN(4) {
		s.Endpoints = append(s.Endpoints, cluster.Endpoint{
			Addr: r.addr(), Ready: r.IntN(3) > 0, Hostname: pick(r, "", "", "h-0", "h-1", "10-0-0-1", "fd00--1", "fd00-0--1"), Pod: pick(r, "", "pod-x", "pod.y"),
		})
	}
	return s
}
