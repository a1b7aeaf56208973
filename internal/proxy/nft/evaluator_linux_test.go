package nft_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestEvaluator changes a table at random, sends connections through it, and compares what
// becomes of them with what the evaluator says.
func TestEvaluator(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	random := rand.New(rand.NewPCG(7, 8))
	table := w.table(nil)
	state := &frontend.State{ServiceCIDRs: prefixes("10.96.0.0/24", "fd00:96::/112")}
	w.sync(table, state)
	node := frontend.Node{Addresses: []netip.Addr{nodeOutside[0], nodeOutside[1], inner[0], inner[1]}, Pods: frontend.Pods{CIDRs: podCIDRs}}
	evaluator := frontend.NewEvaluator(node, state)
	counts := make(map[frontend.Reason]int)
	for range 120 {
		c := randomChange(random)
		must(t, apply(table, c))
		evaluator.Apply(c)
		if random.IntN(10) == 0 { // a restart changes nothing
			table.Close()
			table = w.table(nil)
			if n := w.sync(table, evaluator.State()); n != 0 {
				t.Fatalf("a restart changed %d elements", n)
			}
		}
		for range 6 {
			w.compare(evaluator, random, counts)
		}
	}
	t.Logf("connections by reason: %v", counts)
	for _, r := range []frontend.Reason{
		frontend.AllClients, frontend.OutsideClient, frontend.PodClient, frontend.NodeClient, frontend.NoEndpoints,
		frontend.UndefinedPort, frontend.NoLocalEndpoints, frontend.OutsideSourceRanges, frontend.Unallocated, chosen,
	} {
		if counts[r] == 0 {
			t.Errorf("no connection with reason %s", r)
		}
	}
}

// nodeOutside are the node's addresses in the network outside, the sources of its own
// connections to virtual addresses.
var nodeOutside = addrs("192.0.2.1", "2001:db8::1")

// chosen counts connections whose endpoint is chosen by hash.
const chosen frontend.Reason = "chosen by hash"

const randomVIPs = 5

// The ports that random connections come from, outside of those that the kernel gives.
const firstClientPort, clientPorts = 10000, 20000

// randomChange puts or deletes a frontend at one of a few addresses.
func randomChange(random *rand.Rand) *frontend.Changes {
	family := random.IntN(2)
	at := frontend.Address{Addr: vip(family, 1+random.IntN(randomVIPs)), Protocol: frontend.TCP, Port: 80 + uint16(random.IntN(2))}
	if random.IntN(6) == 0 {
		return &frontend.Changes{Delete: []frontend.Address{at}}
	}
	f := &frontend.Frontend{Address: at, Policy: frontend.Policy(random.IntN(3)), Empty: frontend.Empty(random.IntN(2))}
	some := func() (list []netip.AddrPort) {
		for _, e := range endpoints(family, 3) {
			if random.IntN(2) == 0 {
				list = append(list, e)
			}
		}
		return list
	}
	f.Endpoints = some()
	if f.Policy == frontend.ExternalLocal && len(f.Endpoints) > 0 {
		f.Local = some()
	}
	if f.Policy != frontend.Plain && random.IntN(3) == 0 {
		f.Sources = []netip.Prefix{netip.PrefixFrom(podClient[family], podClient[family].BitLen())}
	}
	if len(f.Endpoints) > 1 && random.IntN(3) == 0 {
		for range f.Endpoints {
			f.Shares = append(f.Shares, uint8(1+random.IntN(5)))
		}
	}
	f.Choice = frontend.Choice(random.IntN(3))
	if random.IntN(4) == 0 {
		f.Affinity = &frontend.Affinity{Group: at.String(), Timeout: time.Hour}
	}
	return &frontend.Changes{Put: []*frontend.Frontend{f}}
}

// compare makes a random connection and compares what becomes of it.
func (w *world) compare(evaluator *frontend.Evaluator, random *rand.Rand, counts map[frontend.Reason]int) {
	w.t.Helper()
	family := random.IntN(2)
	client := []struct {
		from   *namespace.Network
		source netip.Addr
		arrive string
	}{{w.pod, podClient[family], clientNet.name}, {w.outside, outClient[family], outerNet.name}, {nil, nodeOutside[family], ""}}[random.IntN(3)]
	to := netip.AddrPortFrom(vip(family, 1+random.IntN(randomVIPs+1)), 80+uint16(random.IntN(2)))
	port := firstClientPort + uint16(random.IntN(clientPorts))
	verdict := evaluator.Forward(frontend.Connection{
		Source: client.source, SourcePort: port, To: frontend.Address{Addr: to.Addr(), Protocol: frontend.TCP, Port: to.Port()}, Interface: client.arrive,
	})
	if verdict.Action == frontend.Pass { // an external address without such a port: the network decides
		return
	}
	counts[verdict.Reason]++
	if verdict.Chosen.IsValid() {
		counts[chosen]++
	}
	wait := patience
	if verdict.Action == frontend.Discard {
		wait = 20 * time.Millisecond // what is forwarded is faster
	}
	var got answer
	namespacetest.Do(w.t, client.from, func() { got = dialFrom(wait, netip.AddrPortFrom(client.source, port), to) })
	wrong := func(want string) {
		w.t.Errorf("%s to %s: %s, want %s (%s)", client.source, to, got, want, verdict.Reason)
	}
	switch {
	case verdict.Action == frontend.Refuse:
		if got.err != "refused" {
			wrong("refused")
		}
	case verdict.Action == frontend.Discard:
		if got.err != "timeout" {
			wrong("timeout")
		}
	case got.err != "" || !slices.Contains(verdict.Endpoints, got.server):
		wrong("an endpoint")
	case verdict.Chosen.IsValid() && got.server != verdict.Chosen:
		wrong("endpoint " + verdict.Chosen.String())
	case verdict.Masquerade != frontend.NotMasqueraded && got.client.Addr() != inner[family]:
		wrong("client " + inner[family].String())
	case verdict.Masquerade == frontend.NotMasqueraded && got.client.Addr() != client.source:
		wrong("client " + client.source.String())
	}
}
