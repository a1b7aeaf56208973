package world_test

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/testcert"
	"portolan.dev/portolan/test/world"
)

// base is a cluster in which each client gets what it asks for.
const base = "../../internal/pod/app/testdata/situations/base.yaml"

// baseWorld makes the world of base.
func baseWorld(t *testing.T) *world.World {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	for secret, name := range map[string]string{"shop-tls": "*.shop.example", "pay-tls": "pay.example.com"} {
		c, err := testcert.New(name, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		certificate, key := c.PEM()
		text = fmt.Appendf(text, "\n---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\n"+
			"metadata: {namespace: infra, name: %s}\ndata: {tls.crt: %s, tls.key: %s}\n", secret,
			base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	return world.New(t, world.Options{
		Manifests: dir, Settings: "gateway: {publish: {service: infra/portolan-gateway}}",
		Names: map[string][]netip.Addr{
			"www.shop.example": gateway, "checkout.shop.example": gateway, "pay.example.com": gateway,
		},
		Servers: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.80:80")},
	})
}

// TestWorld sends one of each kind from each kind of client.
func TestWorld(t *testing.T) {
	t.Parallel()
	w := baseWorld(t)
	client, batch, debug := w.Pod("shop", "client"), w.Pod("shop", "batch"), w.Pod("tools", "debug")
	near, partner := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.9")

	for name, want := range map[string]string{
		"web":                      "web.shop.svc.cluster.local. [10.96.20.1 fd00:10:96::20:1]",
		"redis.data":               "redis.data.svc.cluster.local. [10.96.30.2]",
		"postgres-0.postgres.data": "postgres-0.postgres.data.svc.cluster.local. [10.244.1.31]",
		"pay.example.com":          "pay.example.com. [192.0.2.10]",
		"nothing":                  " []",
	} {
		l, err := client.Lookup(t.Context(), name)
		if got := fmt.Sprintf("%s %v", l.Name, l.Addrs); err != nil || got != want {
			t.Errorf("Lookup(%s) = %s (%s), %v, want %s", name, got, l.Status, err, want)
		}
	}
	for claim, c := range map[string]struct {
		from        *world.Client
		network, to string
		want        world.Outcome
		server      string
	}{
		"a policy allows it":               {client, "tcp", "10.96.30.2:6379", world.Connected, "data/redis-0"},
		"with IPv6":                        {client, "tcp", "[fd00:10:244:2::11]:8080", world.Connected, "shop/web-1"},
		"a policy denies it":               {batch, "tcp", "10.96.30.2:6379", world.Dropped, ""},
		"by UDP":                           {client, "udp", "10.96.30.3:8125", world.Connected, "data/statsd-0"},
		"denied by UDP":                    {debug, "udp", "10.96.30.3:8125", world.Dropped, ""},
		"the Pod has no such server":       {debug, "tcp", "10.244.1.2:54", world.Refused, ""},
		"a load balancer, by its source":   {w.Outside(partner, "n1"), "tcp", "192.0.2.20:80", world.Connected, "shop/partners-0"},
		"a load balancer, by another":      {w.Outside(near, "n2"), "tcp", "192.0.2.20:80", world.Dropped, ""},
		"a node reaches its Pods":          {w.Node("n1"), "tcp", "10.244.1.11:8080", world.Connected, "shop/web-0"},
		"a node does not reach other Pods": {w.Node("n1"), "tcp", "10.244.2.11:8080", world.Dropped, ""},
		"a server outside":                 {debug, "tcp", "203.0.113.80:80", world.Connected, "outside"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			got, err := c.from.Connect(t.Context(), c.network, netip.MustParseAddrPort(c.to))
			if err != nil || got.Outcome != c.want || got.Server != c.server {
				t.Errorf("Connect(%s, %s) from %s = %+v, %v, want %s %s", c.network, c.to, c.from.Name, got, err, c.want, c.server)
			}
		})
	}
	for claim, c := range map[string]struct {
		from    *world.Client
		request world.Request
		want    string
	}{
		"through the gateway": {client, world.Request{URL: "http://checkout.shop.example/a?b=c"}, "200 bank/ledger-0 /a?b=c"},
		"with TLS":            {client, world.Request{URL: "https://pay.example.com/a"}, "200 bank/ledger-0 /a"},
		"no route":            {client, world.Request{URL: "http://www.shop.example/", Method: "POST"}, "200"},
		"from outside": {
			w.Outside(near, "n2"), world.Request{URL: "http://other.shop.example/", At: netip.MustParseAddr("192.0.2.10")}, "404  ",
		},
		"no gateway": {client, world.Request{URL: "http://web/x"}, "200 shop/web-"},
	} {
		got, err := c.from.Do(t.Context(), c.request)
		text := fmt.Sprintf("%d %s %s", got.Status, got.Backend, got.Header.Get(world.PathField))
		if err != nil || len(text) < len(c.want) || text[:len(c.want)] != c.want {
			t.Errorf("%s: Do(%+v) = %s (%+v), %v, want %s", claim, c.request, text, got, err, c.want)
		}
	}
}
