package netns

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// external are the names outside the cluster's zones. Other names are NXDOMAIN, or
// NODATA if a name below them is listed.
const external = `
www.example.test. A 192.0.2.1
www.example.test. AAAA 2001:db8::1
six.example.test. AAAA 2001:db8::2
four.example.test. A 192.0.2.4
nodata.example.test. TXT none
alias.example.test. CNAME www.example.test.
dangling.example.test. CNAME nodata.example.test.
half.example.test. TXT none
a.b.c.d.e.example.test. A 192.0.2.5
nodata.one.test. TXT none
nodata.two.test. A 192.0.2.6
mixed.one.test. AAAA 2001:db8::6
mixed.two.test. A 192.0.2.8
alias.one.test. CNAME nodata.example.test.
alias.two.test. A 192.0.2.9
gone.one.test. CNAME missing.example.test.
gone.two.test. A 192.0.2.10
late.three.test. A 192.0.2.11
late.one.test. TXT none
broken.two.test. A 192.0.2.12
onlysix.one.test. AAAA 2001:db8::12
sixbroken.one.test. A 192.0.2.13
_broken._tcp.two.test. SRV 0 0 80 www.example.test.
twobroken.two.test. TXT none
`

// broken are the questions that the upstream answers with SERVFAIL.
var broken = map[string]bool{
	"broken.one.test. A": true, "broken.one.test. AAAA": true,
	"onlysix.one.test. A":      true,
	"sixbroken.one.test. AAAA": true,
	"twobroken.one.test. A":    true, "twobroken.one.test. AAAA": true,
	"_broken._tcp.one.test. SRV": true,
}

// serveUpstream answers external names.
func serveUpstream(t *testing.T) {
	t.Helper()
	records := make(map[string][]dns.RR)
	for text := range strings.Lines(external) {
		name, rest, ok := strings.Cut(strings.TrimSpace(text), " ")
		if !ok {
			continue
		}
		rr, err := dns.NewRR(name + " 60 IN " + rest)
		if err != nil {
			t.Fatal(err)
		}
		records[name] = append(records[name], rr)
	}
	serve(t, netip.AddrPortFrom(upstream, 53), func(w dns.ResponseWriter, r *dns.Msg) {
		_ = w.WriteMsg(answer(r, records))
	})
}

func answer(r *dns.Msg, records map[string][]dns.RR) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	m.RecursionAvailable = true
	q := r.Question[0]
	name := strings.ToLower(q.Name)
	switch {
	case broken[name+" "+dns.TypeToString[q.Qtype]]:
		m.Rcode = dns.RcodeServerFailure
		return m
	case dns.IsSubDomain("refused.example.", name):
		m.Rcode = dns.RcodeRefused
		return m
	}
	for range 3 { // aliases
		var alias *dns.CNAME
		for _, rr := range records[name] {
			if c, ok := rr.(*dns.CNAME); ok {
				alias = c
			}
			if rr.Header().Rrtype == q.Qtype || rr.Header().Rrtype == dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
		}
		if alias == nil {
			break
		}
		name = strings.ToLower(alias.Target)
	}
	if !exists(name, records) {
		m.Rcode = dns.RcodeNameError
	}
	return m
}

func exists(name string, records map[string][]dns.RR) bool {
	for owner := range records {
		if dns.IsSubDomain(name, owner) {
			return true
		}
	}
	return false
}

// sizes are headless Services and their number of endpoints.
var sizes = map[string]int{"many": 40, "n24": 24, "n25": 25, "n81": 81, "n82": 82}

// cluster returns the manifests.
func cluster() string {
	var b bytes.Buffer
	for _, ns := range []string{"default", "shop", "data"} {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", ns)
	}
	service := func(ns, name, spec string) {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n---\n", name, ns, spec)
	}
	const http = ", ports: [{name: http, port: 80}]"
	service("default", "kubernetes", "clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ipFamilies: [IPv4]"+http)
	service("shop", "web", "clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], ipFamilies: [IPv4]"+http)
	service("data", "web", "clusterIP: 10.96.0.21, clusterIPs: [10.96.0.21], ipFamilies: [IPv4]"+http)
	service("shop", "dual", `clusterIP: 10.96.0.22, clusterIPs: [10.96.0.22, "fd00::22"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack`+http)
	service("shop", "six", `clusterIP: "fd00::23", clusterIPs: ["fd00::23"], ipFamilies: [IPv6]`+http)
	service("data", "six", "clusterIP: 10.96.0.24, clusterIPs: [10.96.0.24], ipFamilies: [IPv4]"+http)
	service("data", "db", "clusterIP: None, clusterIPs: [None], ipFamilies: [IPv4]"+http)
	for name := range sizes {
		service("data", name, "clusterIP: None, clusterIPs: [None], ipFamilies: [IPv4]"+http)
	}
	service("shop", "peers", "clusterIP: None, clusterIPs: [None], ipFamilies: [IPv4]"+http)
	service("shop", "ext", "type: ExternalName, externalName: www.example.test")
	service("shop", "gone", "type: ExternalName, externalName: missing.example.test")
	service("shop", "half", "type: ExternalName, externalName: half.example.test")
	service("shop", "extmany", "type: ExternalName, externalName: n25.data.svc.cluster.local")
	service("shop", "literal", "type: ExternalName, externalName: 10.0.0.9")
	slice := func(ns, service, endpoints string) {
		fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-1, namespace: %s, labels: {kubernetes.io/service-name: %s}}\n"+
			"addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: [%s]\n---\n", service, ns, service, endpoints)
	}
	slice("data", "db", "{addresses: [10.0.1.1], hostname: db-0}")
	slice("shop", "peers", "{addresses: [10.0.1.2], conditions: {ready: false}}")
	for service, n := range sizes {
		var many []string
		for i := range n {
			many = append(many, fmt.Sprintf("{addresses: [10.0.3.%d]}", i+1))
		}
		slice("data", service, strings.Join(many, ", "))
	}
	b.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: one, namespace: shop}\nspec: {containers: [{name: c, image: i}]}\nstatus: {phase: Running, podIP: 10.0.2.1, podIPs: [{ip: 10.0.2.1}]}\n")
	return b.String()
}
