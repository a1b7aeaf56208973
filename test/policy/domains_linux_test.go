package policy

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// The network of TestDomains: Pods reach the agent's DNS, which asks the upstream; that one has all
// addresses of servers, too.
//
//	Pods ── node, agent 169.254.20.10 ── upstream 192.0.2.53, servers 198.18.0.0/16
const (
	agentDNS = "169.254.20.10:53"
	upstream = "192.0.2.53:53"
)

// dnsLabels are those of the Pods of the cluster DNS; policies that allow queries to them allow them to the
// agent.
var dnsLabels = map[string]string{"k8s-app": "kube-dns"}

// upstreamServer answers each query with another address of the servers.
type upstreamServer struct {
	network *namespace.Network
	answers atomic.Uint32
}

func newUpstream(t *testing.T) *upstreamServer {
	t.Helper()
	s := &upstreamServer{network: namespacetest.Attach(t, "uplink",
		[]netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}, netip.MustParsePrefix("192.0.2.53/24"))}
	must(t, namespace.IP("route add 198.18.0.0/16 via 192.0.2.53"))
	must(t, s.network.Do(func() error { return namespace.IP("route add local 198.18.0.0/16 dev lo") }))
	serve(t, &pod{Network: s.network})
	var conn net.PacketConn
	must(t, s.network.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", upstream)
		return err
	}))
	server := &dns.Server{PacketConn: conn, Handler: s}
	go func() { _ = server.ActivateAndServe() }() // until the connection is closed
	t.Cleanup(func() { conn.Close() })
	return s
}

// ServeDNS answers a query for an address.
func (s *upstreamServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	if question := q.Question[0]; question.Qtype == dns.TypeA {
		n := s.answers.Add(1)
		m.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET},
			A:   net.IPv4(198, 18, byte(n>>8), byte(n)),
		}}
	}
	_ = w.WriteMsg(m)
}

// lookUp asks a server for the address of a name, from a Pod.
func lookUp(p *pod, server, name string, patience time.Duration) (addr netip.Addr, err error) {
	err = p.Network.Do(func() error {
		conn, err := net.Dial("udp", server)
		if err != nil {
			return err
		}
		defer conn.Close()
		client := &dns.Client{Timeout: patience}
		m, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(name, dns.TypeA), &dns.Conn{Conn: conn})
		if err != nil {
			return err
		}
		for _, rr := range m.Answer {
			if a, ok := rr.(*dns.A); ok {
				addr, _ = netip.AddrFromSlice(a.A.To4())
				return nil
			}
		}
		return errors.New(dns.RcodeToString[m.Rcode] + " without an address")
	})
	return addr, err
}

// byTiers lets Pods of an app send DNS to the cluster DNS, and connect to names under example.test.
func byTiers(name string) *policyv1alpha2.ClusterNetworkPolicy {
	dnsPods := &policyv1alpha2.NamespacedPod{PodSelector: metav1.LabelSelector{MatchLabels: dnsLabels}}
	return &policyv1alpha2.ClusterNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "by-tiers"},
		Spec: policyv1alpha2.ClusterNetworkPolicySpec{
			Tier: policyv1alpha2.AdminTier, Priority: 1,
			Subject: policyv1alpha2.ClusterNetworkPolicySubject{
				Pods: &policyv1alpha2.NamespacedPod{PodSelector: ofApp(name)},
			},
			Egress: []policyv1alpha2.ClusterNetworkPolicyEgressRule{
				{
					Action: policyv1alpha2.ClusterNetworkPolicyRuleActionAccept,
					To:     []policyv1alpha2.ClusterNetworkPolicyEgressPeer{{Pods: dnsPods}},
					Protocols: []policyv1alpha2.ClusterNetworkPolicyProtocol{
						{UDP: &policyv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: &policyv1alpha2.Port{Number: 53}}},
					},
				},
				{
					Action: policyv1alpha2.ClusterNetworkPolicyRuleActionAccept,
					To: []policyv1alpha2.ClusterNetworkPolicyEgressPeer{
						{DomainNames: []policyv1alpha2.DomainName{"*.example.test"}},
					},
				},
				{
					Action: policyv1alpha2.ClusterNetworkPolicyRuleActionDeny,
					To:     []policyv1alpha2.ClusterNetworkPolicyEgressPeer{{Networks: []policyv1alpha2.CIDR{"0.0.0.0/0"}}},
				},
			},
		},
	}
}

// TestDomains has Pods look names up and connect at once, each time to another address. No connection may
// fail whose name a policy has, and none to another address succeed. The variable LOOKUPS is how many there
// are.
func TestDomains(t *testing.T) {
	w := prepare(t, "dns,policy", "node: {mode: cache, servers: ['udp://"+upstream+"'], addresses: [169.254.20.10]}\n"+
		"dns: {forward: {routes: [{upstreams: ['"+upstream+"']}]}}")
	if w == nil {
		return
	}
	lookups := number(t, "LOOKUPS", 200)
	newUpstream(t)
	byAnnotation := policy("by-annotation", networkingv1.NetworkPolicySpec{
		PodSelector: ofApp("annotated"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
			{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: dnsLabels}},
		}}},
	})
	byAnnotation.Annotations = map[string]string{cluster.AnnotationEgressDomains: "*.example.test"}
	w.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, byTiers("tiered"), byAnnotation)
	w.Start(t)
	for i, name := range []string{"tiered", "annotated"} {
		p := w.launch(t, name, app(name), "10.244.1."+strconv.Itoa(10+i))
		t.Run(name, func(t *testing.T) {
			lookUpThenConnect(t, p, lookups)
			denied(t, p)
		})
	}
}

// lookUpThenConnect looks names up, in turn one that was not looked up before and always the same, and
// connects to the addresses.
func lookUpThenConnect(t *testing.T, p *pod, lookups int) {
	t.Helper()
	var next, refused atomic.Int64
	var mu sync.Mutex
	seen := make(map[netip.Addr]bool)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := int(next.Add(1)); i <= lookups; i = int(next.Add(1)) {
				name := "same.example.test."
				if i%2 == 0 {
					name = p.Name + strconv.Itoa(i) + ".example.test."
				}
				addr, err := lookUp(p, agentDNS, name, patience)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if err := dial(p, netip.AddrPortFrom(addr, port)); err != nil {
					t.Logf("connection to %s after its lookup: %v", addr, err)
					refused.Add(1)
				}
				mu.Lock()
				seen[addr] = true
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d of %d connections failed that followed a lookup", n, lookups)
	}
	if len(seen) < lookups/2 {
		t.Errorf("%d lookups had %d addresses, want another one at least each second time", lookups, len(seen))
	}
	t.Logf("%d connections to %d addresses", lookups, len(seen))
}

// denied verifies that a Pod cannot connect to addresses of no name or of others, nor ask the upstream.
func denied(t *testing.T, p *pod) {
	t.Helper()
	other, err := lookUp(p, agentDNS, p.Name+".example.net.", patience)
	must(t, err)
	for what, addr := range map[string]netip.Addr{
		"an address that was not looked up": netip.MustParseAddr("198.18.255.255"), "that of another name": other,
	} {
		if err := dial(p, netip.AddrPortFrom(addr, port)); !timedOut(err) {
			t.Errorf("a connection to %s, %s: %v, want a timeout", what, addr, err)
		}
	}
	if addr, err := lookUp(p, upstream, "direct.example.test.", time.Second); !timedOut(err) {
		t.Errorf("a query to the upstream: %s, %v, want a timeout", addr, err)
	}
}
