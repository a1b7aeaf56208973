package query

import (
	"fmt"
	"math/rand/v2"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// workload is a set of queries and how they are sent.
type workload struct {
	name      string
	transport load.Transport
	sockets   int
	queries   func(*asker)
	// window is the number of queries under way at once when the processor time is
	// measured; 0 is that of the flag.
	window int
}

// These are the numbers of sockets for workloads that do not measure them.
const (
	usualSockets = 16
	// callSockets is the number of concurrent connections if each has one query. It is
	// below the accept backlog of Knot (10), because a rejected client retries only
	// after a second.
	callSockets = 8
)

// These are the UDP sizes that queries announce. glibc and musl announce none; hits and
// mix have their queries.
const (
	noEDNS    = 0
	usualEDNS = 1232
	// largeEDNS fits the 20 SRV records of a headless Service with their addresses. The
	// servers are configured to allow it.
	largeEDNS = 4096
)

func workloads() []workload {
	return []workload{
		{name: "hits", transport: load.UDP, sockets: usualSockets, queries: (*asker).hit},
		{name: "hits-1", transport: load.UDP, sockets: 1, queries: (*asker).hit},
		{name: "hits-100", transport: load.UDP, sockets: 100, queries: (*asker).hit},
		{name: "hits-10000", transport: load.UDP, sockets: 10_000, queries: (*asker).hit},
		// A Pod has one query under way, or two: for A and AAAA.
		{name: "hits-alone", transport: load.UDP, sockets: 1, queries: (*asker).hit, window: 1},
		{name: "hits-pair", transport: load.UDP, sockets: 2, queries: (*asker).hit, window: 2},
		{name: "mix", transport: load.UDP, sockets: usualSockets, queries: (*asker).lookup},
		{name: "nxdomain", transport: load.UDP, sockets: usualSockets, queries: (*asker).unknown},
		{name: "headless-1", transport: load.UDP, sockets: usualSockets, queries: headless(synthetic.Single)},
		{name: "headless-20", transport: load.UDP, sockets: usualSockets, queries: headless(synthetic.Headless)},
		{name: "headless-500", transport: load.UDP, sockets: usualSockets, queries: headless(synthetic.Wide)},
		{name: "headless-500-tcp", transport: load.TCP, sockets: usualSockets, queries: headless(synthetic.Wide)},
		{name: "srv", transport: load.UDP, sockets: usualSockets, queries: service(synthetic.ClusterIP, usualEDNS)},
		{name: "srv-20", transport: load.UDP, sockets: usualSockets, queries: service(synthetic.Headless, largeEDNS)},
		{name: "ptr", transport: load.UDP, sockets: usualSockets, queries: (*asker).reverse},
		{name: "tcp", transport: load.TCP, sockets: usualSockets, queries: (*asker).hit},
		{name: "tcp-connections", transport: load.Connections, sockets: callSockets, queries: (*asker).hit},
		{name: "tls", transport: load.TLS, sockets: usualSockets, queries: (*asker).hit},
		{name: "tls-connections", transport: load.TLSConnections, sockets: callSockets, queries: (*asker).hit},
	}
}

func workloadNames() (names []string) {
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}

// query is one query of a client.
type query struct {
	name    string
	kind    dnswire.Type
	udpSize uint16
}

func (q query) String() string { return fmt.Sprintf("%s %s", q.name, q.kind) }

func (q query) wire() ([]byte, error) {
	return dnswire.NewQuery(dnswire.QuerySpec{Name: q.name, Type: q.kind, UDPSize: q.udpSize, Flags: dnswire.FlagRD})
}

// asker generates queries, the same ones each time.
type asker struct {
	*synthetic.Cluster
	random *rand.Rand
	asked  []query
}

// ask returns the first n queries of a workload.
func (w *workload) ask(c *synthetic.Cluster, n int) []query {
	const seed = 1035
	a := &asker{Cluster: c, random: rand.New(rand.NewPCG(seed, seed))}
	for len(a.asked) < n {
		w.queries(a)
	}
	return a.asked[:n]
}

func (a *asker) add(name string, kind dnswire.Type, udpSize uint16) {
	a.asked = append(a.asked, query{name, kind, udpSize})
}

// any returns a random Service of a kind.
func (a *asker) any(k synthetic.Kind) int { return a.random.IntN(a.Services[k]) }

func (a *asker) hit() {
	a.add(a.DNSName(synthetic.ClusterIP, a.any(synthetic.ClusterIP)), dnswire.TypeA, noEDNS)
}

// unknown queries a Service that does not exist in its namespace.
func (a *asker) unknown() {
	name := fmt.Sprintf("%016x.%s.svc.%s", a.random.Uint64(), a.NamespaceName(a.random.IntN(a.Namespaces)),
		synthetic.Domain)
	a.add(name, dnswire.TypeA, usualEDNS)
}

func headless(k synthetic.Kind) func(*asker) {
	return func(a *asker) { a.add(a.DNSName(k, a.any(k)), dnswire.TypeA, usualEDNS) }
}

func service(k synthetic.Kind, udpSize uint16) func(*asker) {
	return func(a *asker) { a.add("_http._tcp."+a.DNSName(k, a.any(k)), dnswire.TypeSRV, udpSize) }
}

// reverse queries the addresses of Services and of endpoints.
func (a *asker) reverse() {
	address := a.ClusterIP(a.any(synthetic.ClusterIP))
	if a.random.IntN(2) == 0 {
		k := synthetic.Headless
		address = a.EndpointIP(k, a.any(k), a.random.IntN(k.Endpoints()))
	}
	b := address.As4()
	a.add(fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0]), dnswire.TypePTR, usualEDNS)
}
