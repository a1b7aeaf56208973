package app

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/internal/network/route"
)

// TestNodeReturns checks that the log says when the Node of the agent is missing, and when it is there again, as it may
// have other ranges then.
func TestNodeReturns(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, plan.Kinds()...) })
	w := &worker{cfg: &Config{Store: store, Node: "n1", Log: slog.New(slog.NewTextHandler(&log, nil))}}
	want := func(claim string, known bool, line string) {
		t.Helper()
		for range 2 { // the second time nothing has changed
			if got := w.known(); got != known {
				t.Errorf("%s: known() = %v, want %v", claim, got, known)
			}
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, line) {
			t.Errorf("%s: the log has %q, want one line with %q", claim, got, line)
		}
		log.Reset()
	}
	want("without the Node", false, "the cluster has no Node of this name")
	node := &cluster.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24")}}
	store.Update(func(tx *cluster.Tx) { tx.Put(node) })
	want("with it", true, `msg="the cluster has the Node" node=n1 ranges=[10.244.7.0/24]`)
}

// fakeRouter is on a host.
type fakeRouter struct {
	router
	host route.Host
}

func (r *fakeRouter) Host() (route.Host, error) { return r.host, nil }
func (*fakeRouter) Apply(*route.Changes) error  { return nil }

// TestAddressInOwnRange checks that no Pod gets an address that the host gets, though no route changes with it.
func TestAddressInOwnRange(t *testing.T) {
	t.Parallel()
	n := &cluster.Node{
		Name: "n1", InternalIPs: []netip.Addr{netip.MustParseAddr("10.244.0.5")},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
	}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.Put(n) })
	pool, err := ipam.Open(ipam.Config{Dir: t.TempDir(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	host := func(addrs ...string) (h route.Host) {
		i := route.Interface{Name: "eth0", Index: 2, MTU: 1500, Up: true}
		for _, a := range addrs {
			i.Addresses = append(i.Addresses, netip.MustParsePrefix(a))
		}
		return route.Host{Interfaces: []route.Interface{i}}
	}
	r := &fakeRouter{host: host("10.244.0.5/16")}
	w := &worker{
		cfg: &Config{Node: "n1", Store: store}, compiler: plan.NewCompiler(plan.Config{Node: "n1"}), router: r, pool: pool,
		host: r.host, boxes: &sandboxes{pool: pool},
	}
	store.View(func(v *cluster.View) {
		state := w.compiler.All(v, r.host)
		err = w.adopt(state.Routes.Local, state.Ranges.Pods)
	})
	if err != nil || len(pool.Stats()) != 1 {
		t.Fatalf("Stats() = %v, %v, want the range", pool.Stats(), err)
	}
	r.host = host("10.244.0.5/16", "10.244.1.7/32")
	if changed, err := w.change(pass{changes: cluster.Changes{}, hostChanged: true}); !changed || err != nil {
		t.Errorf("change = %v, %v, want true", changed, err)
	}
	if got := pool.Stats(); len(got) != 0 {
		t.Errorf("with an address of the range on the host: Stats() = %v, want none", got)
	}
}
