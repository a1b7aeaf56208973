// Package bgp tests the announcements of package announce against GoBGP (github.com/osrg/gobgp) as the router.
package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/announce"
	"portolan.dev/portolan/internal/network/announce/bgp"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

const (
	nodesASN, routerASN = 4200000001, 65002
	password            = "between the two of us"
	community           = 65001<<16 | 100
)

var (
	routerAddr = netip.MustParseAddr("198.51.100.1")
	nodeAddr4  = netip.MustParseAddr("198.51.100.1") // the namespace is that of both
	nodeAddr6  = netip.MustParseAddr("2001:db8:1::1")
	vip4       = netip.MustParseAddr("192.0.2.1")
	vip6       = netip.MustParseAddr("2001:db8::1")
)

// router is a GoBGP server.
type router struct{ *server.BgpServer }

func startRouter(t *testing.T, asn uint32) router {
	t.Helper()
	r := router{server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), new(slog.LevelVar)))}
	go r.Serve()
	must(t, r.StartBgp(t.Context(), &api.StartBgpRequest{Global: &api.Global{
		Asn: asn, RouterId: "192.0.2.250", ListenPort: 1790, ListenAddresses: []string{routerAddr.String()},
	}}))
	t.Cleanup(r.Stop)
	families := []*api.AfiSafi{}
	for _, afi := range []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6} {
		families = append(families, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		})
	}
	must(t, r.AddPeer(t.Context(), &api.AddPeerRequest{Peer: &api.Peer{
		Conf:            &api.PeerConf{NeighborAddress: nodeAddr4.String(), PeerAsn: nodesASN, AuthPassword: password},
		Transport:       &api.Transport{PassiveMode: true},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: 60},
		AfiSafis:        families,
	}}))
	return r
}

// paths returns the routes of both families, a line for each.
func (r router) paths(t *testing.T) (lines []string) {
	t.Helper()
	for _, f := range []wire.Family{wire.RF_IPv4_UC, wire.RF_IPv6_UC} {
		err := r.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: f},
			func(prefix wire.NLRI, paths []*apiutil.Path) {
				for _, p := range paths {
					lines = append(lines, fmt.Sprint(prefix, " ", describe(p)))
				}
			})
		must(t, err)
	}
	slices.Sort(lines)
	return lines
}

// describe returns the attributes of a route, in order.
func describe(p *apiutil.Path) string {
	var parts []string
	add := func(name string, value any) { parts = append(parts, fmt.Sprint(name, " ", value)) }
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *wire.PathAttributeNextHop:
			add("via", a.Value)
		case *wire.PathAttributeMpReachNLRI:
			add("via", a.Nexthop)
		case *wire.PathAttributeAsPath:
			for _, s := range a.Value {
				add("path", s.GetAS())
			}
		case *wire.PathAttributeCommunities:
			add("communities", a.Value)
		case *wire.PathAttributeLocalPref:
			add("preference", a.Value)
		}
	}
	slices.Sort(parts)
	if p.Stale {
		parts = append(parts, "stale")
	}
	return strings.Join(parts, ", ")
}

// expect waits until the router has these routes, and no others.
func (r router) expect(t *testing.T, want ...string) {
	t.Helper()
	await.NoError(t, func() error {
		if got := r.paths(t); !slices.Equal(got, want) {
			return fmt.Errorf("the router has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// startNode starts the agent of a node, and returns the function that ends it.
func startNode(t *testing.T, store *cluster.Store, asn uint32, graceful time.Duration) (stop func()) {
	t.Helper()
	a := announce.New(announce.Config{Node: "a", Store: store, Log: slog.New(slog.DiscardHandler), BGP: &bgp.Config{
		ASN: nodesASN, HoldTime: 9 * time.Second, Log: slog.New(slog.DiscardHandler), Peers: []bgp.Peer{{
			Address: routerAddr, ASN: asn, Port: 1790, Password: func() (string, error) { return password, nil },
			Communities: []uint32{community}, LocalPreference: 200, GracefulRestart: graceful,
		}},
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return func() {
		cancel()
		must(t, <-ended)
	}
}

func newStore(local bool) *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		tx.Put(&cluster.Node{Name: "a", Ready: true, InternalIPs: []netip.Addr{nodeAddr4, nodeAddr6}})
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "web"}, Spec: &cluster.ServiceSpec{
			Type: cluster.LoadBalancer, ExternalLocal: local,
			Ingress: []cluster.IngressIP{{Addr: vip4}, {Addr: vip6}},
		}})
	})
	return store
}

// prepare has the addresses of the node and the router in the namespace of the test.
func prepare(t *testing.T) {
	t.Helper()
	namespacetest.SetUp(t, "lo", netip.PrefixFrom(nodeAddr4, 32), netip.PrefixFrom(nodeAddr6, 128))
}

// TestExternal: an external router has the addresses of both families with their attributes, loses them when the node
// leaves, and when the agent ends.
func TestExternal(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	prepare(t)
	r, store := startRouter(t, routerASN), newStore(false)
	stop := startNode(t, store, routerASN, 0)
	const attributes = "communities [4259905636], path [4200000001]"
	four, six := "192.0.2.1/32 "+attributes+", via 198.51.100.1", "2001:db8::1/128 "+attributes+", via 2001:db8:1::1"
	r.expect(t, four, six)
	leave := func(leaving bool) {
		store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.Node{Name: "a", Ready: true, Leaving: leaving, InternalIPs: []netip.Addr{nodeAddr4, nodeAddr6}})
		})
	}
	leave(true)
	r.expect(t)
	leave(false)
	r.expect(t, four, six)
	stop()
	r.expect(t)
}

// TestLocal: with externalTrafficPolicy Local, a node with an endpoint of a family announces the addresses of that
// family.
func TestLocal(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	prepare(t)
	r, store := startRouter(t, routerASN), newStore(true)
	defer startNode(t, store, routerASN, 0)()
	store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.EndpointSlice{
			Key: cluster.Key{Namespace: "shop", Name: "web-1"}, Service: "web", AddressType: cluster.IPv4,
			Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("10.1.0.1"), Ready: true, Serving: true}},
			Spec:      &cluster.SliceSpec{Places: []cluster.Place{{Node: "a"}}},
		})
	})
	r.expect(t, "192.0.2.1/32 communities [4259905636], path [4200000001], via 198.51.100.1")
}

// TestInternal: an internal router has the local preference, and no path. With graceful restart it keeps the routes
// while the agent is replaced.
func TestInternal(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	prepare(t)
	r, store := startRouter(t, nodesASN), newStore(false)
	stop := startNode(t, store, nodesASN, time.Minute)
	const attributes = "communities [4259905636], preference 200"
	four, six := "192.0.2.1/32 "+attributes+", via 198.51.100.1", "2001:db8::1/128 "+attributes+", via 2001:db8:1::1"
	r.expect(t, four, six)
	stop()
	r.expect(t, four+", stale", six+", stale")
	defer startNode(t, store, nodesASN, time.Minute)()
	r.expect(t, four, six)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
