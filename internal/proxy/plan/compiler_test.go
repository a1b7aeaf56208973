package plan

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// TestDuplicates checks who has an address that several Services want, and what the others are
// told.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	older, younger := key("shop", "older"), key("shop", "younger")
	of := func(k cluster.Key, created int64) *cluster.Service {
		return &cluster.Service{
			Key: k, Created: created, ClusterIPs: addrs(map[cluster.Key]string{older: "10.96.0.1", younger: "10.96.0.2"}[k]),
			Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}},
			Spec:  &cluster.ServiceSpec{Type: cluster.ClusterIP, ExternalIPs: addrs("203.0.113.1")},
		}
	}
	endpoints := func(k cluster.Key, text string) *cluster.EndpointSlice {
		s := slice(k.Name, ep(text))
		s.Service = k.Name
		return s
	}
	const at = "203.0.113.1:80/tcp external "
	for claim, test := range map[string]struct {
		change func(*cluster.Tx)
		want   string
		// told is which Service is told that the other has the address; zero is none.
		told cluster.Key
	}{
		"the older one has the address": {func(*cluster.Tx) {}, at + "10.1.0.1:8080", younger},
		"the younger one has it when the older is deleted": {
			func(tx *cluster.Tx) { tx.Delete(cluster.KindService, older) }, at + "10.1.0.2:8080", cluster.Key{},
		},
		"the younger one has it when the older is not served any more": {func(tx *cluster.Tx) {
			s := of(older, 1)
			s.Spec.Labels = map[string]string{cluster.LabelProxyName: "other"}
			tx.Put(s)
		}, at + "10.1.0.2:8080", cluster.Key{}},
		"the younger one has it when the older uses another port": {func(tx *cluster.Tx) {
			s := of(older, 1)
			s.Ports[0].Number = 81
			tx.Put(s)
		}, at + "10.1.0.2:8080", cluster.Key{}},
		"one that is created again is the younger":    {func(tx *cluster.Tx) { tx.Put(of(older, 3)) }, at + "10.1.0.2:8080", older},
		"of the same second the first by name has it": {func(tx *cluster.Tx) { tx.Put(of(older, 2)) }, at + "10.1.0.1:8080", younger},
		"one of unknown age comes last":               {func(tx *cluster.Tx) { tx.Put(of(older, 0)) }, at + "10.1.0.2:8080", older},
		"the one whose cluster IP it is has it, though it is younger": {func(tx *cluster.Tx) {
			s := of(younger, 2)
			s.ClusterIPs = addrs("203.0.113.1")
			tx.Put(s)
		}, "203.0.113.1:80/tcp plain 10.1.0.2:8080", older},
		"the older one has it without an endpoint": {
			func(tx *cluster.Tx) { tx.Delete(cluster.KindEndpointSlice, key("shop", "older")) }, "203.0.113.1:80/tcp external", younger,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := cluster.NewStore()
			store.Update(func(tx *cluster.Tx) {
				tx.Put(of(older, 1))
				tx.Put(of(younger, 2))
				tx.Put(endpoints(older, "10.1.0.1"))
				tx.Put(endpoints(younger, "10.1.0.2"))
			})
			c := NewCompiler(theNode)
			store.View(func(v *cluster.View) { c.All(v, theNode) })
			store.Update(test.change)
			var got []string
			store.View(func(v *cluster.View) {
				c.Apply(v, slices.Values([]cluster.Key{older, younger}))
				for _, f := range NewCompiler(theNode).All(v, theNode).Frontends {
					if f.Addr == addr("203.0.113.1") && f.Port == 80 {
						got = append(got, frontendText(f))
					}
				}
			})
			if want := []string{test.want}; !slices.Equal(got, want) {
				t.Errorf("All: at 203.0.113.1:80 %q, want %q", got, want)
			}
			for _, k := range []cluster.Key{older, younger} {
				var others []cluster.Key
				for _, v := range c.Service(k).Verdicts {
					if v.Reason == Taken {
						others = append(others, v.Other)
					}
				}
				var want []cluster.Key
				if k == test.told {
					want = []cluster.Key{map[cluster.Key]cluster.Key{older: younger, younger: older}[k]}
				}
				if !slices.Equal(others, want) {
					t.Errorf("Service(%s): addresses taken by %v, want %v", k, others, want)
				}
			}
		})
	}
}

// TestApplyChangesLittle checks that changes are those of the addresses that they concern.
func TestApplyChangesLittle(t *testing.T) {
	t.Parallel()
	web := key("shop", "web")
	both := targets("10.1.0.5:8080", "10.1.0.7:8080")
	web2 := []*frontend.Frontend{{Address: webAddress(), Endpoints: both, Serving: both}}
	for claim, test := range map[string]struct {
		change func(*cluster.Tx)
		keys   []cluster.Key
		want   frontend.Changes
	}{
		"nothing changed":                     {func(*cluster.Tx) {}, []cluster.Key{web, web}, frontend.Changes{}},
		"a Service that never was":            {func(*cluster.Tx) {}, []cluster.Key{key("shop", "no")}, frontend.Changes{}},
		"an endpoint that nobody may use":     {put(slice("b", ep("10.1.0.7").unready())), []cluster.Key{web}, frontend.Changes{}},
		"a label of no meaning to the kernel": {labeled("a", "b"), []cluster.Key{web}, frontend.Changes{}},
		"an endpoint elsewhere changes no hairpin": {
			put(slice("b", ep("10.1.0.7").on("there"))), []cluster.Key{web},
			frontend.Changes{Put: web2, Serving: web2},
		},
		"an endpoint that only old flows may use": {
			put(slice("b", ep("10.1.0.7").terminating())), []cluster.Key{web},
			frontend.Changes{Serving: []*frontend.Frontend{{
				Address: webAddress(), Endpoints: targets("10.1.0.5:8080"), Serving: targets("10.1.0.5:8080", "10.1.0.7:8080"),
			}}},
		},
		"the last use of an endpoint on the node is the end of its hairpin": {
			func(tx *cluster.Tx) { tx.Delete(cluster.KindEndpointSlice, key("shop", "a")) }, []cluster.Key{web},
			frontend.Changes{
				Put:      []*frontend.Frontend{{Address: webAddress()}},
				Serving:  []*frontend.Frontend{{Address: webAddress()}},
				Hairpins: hairpins("10.1.0.5", false),
			},
		},
		"a deleted Service": {
			func(tx *cluster.Tx) { tx.Delete(cluster.KindService, web) }, []cluster.Key{web},
			frontend.Changes{Delete: []frontend.Address{webAddress()}, Hairpins: hairpins("10.1.0.5", false)},
		},
		"ranges of Services": {
			put(&cluster.ServiceCIDR{Name: "b", CIDRs: prefixes("fd96::/112", "10.96.0.0/16")}), nil,
			frontend.Changes{ServiceCIDRs: prefixes("10.96.0.0/16", "fd96::/112")},
		},
		"the last range of Services is none": {
			func(tx *cluster.Tx) { tx.Delete(cluster.KindServiceCIDR, cluster.Key{Name: "a"}) }, nil,
			frontend.Changes{ServiceCIDRs: prefixes()},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store, _ := storeOf(func(*cluster.Service) {}, list(slice("a", ep("10.1.0.5").on("here"))))
			store.Update(put(&cluster.ServiceCIDR{Name: "a", CIDRs: prefixes("10.96.0.0/16")}))
			c := NewCompiler(theNode)
			store.View(func(v *cluster.View) { c.All(v, theNode) })
			store.Update(test.change)
			store.View(func(v *cluster.View) {
				got := c.Apply(v, slices.Values(test.keys))
				if diff := cmp.Diff(&test.want, got, equate()); diff != "" {
					t.Errorf("Apply(%v): (-want +got)\n%s", test.keys, diff)
				}
				if (got.ServiceCIDRs == nil) != (test.want.ServiceCIDRs == nil) {
					t.Errorf("Apply(%v).ServiceCIDRs = %#v, want %#v", test.keys, got.ServiceCIDRs, test.want.ServiceCIDRs)
				}
			})
		})
	}
}

func put(o cluster.Object) func(*cluster.Tx) { return func(tx *cluster.Tx) { tx.Put(o) } }

// labeled has the Service shop/web labeled.
func labeled(label, value string) func(*cluster.Tx) {
	return func(tx *cluster.Tx) {
		s := *tx.Service(key("shop", "web"))
		spec := *s.Spec
		spec.Labels = map[string]string{label: value}
		s.Spec = &spec
		tx.Put(&s)
	}
}

func key(namespace, name string) cluster.Key { return cluster.Key{Namespace: namespace, Name: name} }

// webAddress is where the Service shop/web is.
func webAddress() frontend.Address {
	return frontend.Address{Addr: addr("10.96.0.10"), Protocol: frontend.TCP, Port: 80}
}

func targets(texts ...string) (all []netip.AddrPort) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

func hairpins(text string, there bool) map[netip.Addr]bool {
	return map[netip.Addr]bool{addr(text): there}
}

func equate() cmp.Options {
	return cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})}
}
