package app

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/resolvconf"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
)

// trouble reads the example in which each name fails for a different reason.
func trouble(t *testing.T) *world {
	t.Helper()
	c := config.Default()
	c.Manifests = "../../../examples/trouble"
	d := newWorld(t, c)
	for _, p := range d.loaded.Problems {
		t.Error(p)
	}
	return d
}

func subject(t *testing.T, d *world, reference string) dnsconfig.Subject {
	t.Helper()
	r, err := dnsconfig.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Subject(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestExplain checks the outcome and the first diagnosis of each name of the example.
func TestExplain(t *testing.T) {
	d := trouble(t)
	tests := []struct {
		name, from string
		rrtype     dnswire.Type
		libc       dnsconfig.Libc
		outcome    string
		packets    int
		rule       string // "" is no diagnosis
		cure       string // part of the cure
	}{
		{"web", "shop/client", 0, dnsconfig.Glibc, "found", 2, "", ""},
		{"web", "shop/client", 0, dnsconfig.Musl, "found", 2, "", ""},
		{"web", "shop/client", 0, dnsconfig.GoResolver, "found", 2, "", ""},
		{"web", "shop/client", 0, dnsconfig.WindowsClient, "found", 2, "", ""},
		{"client", "shop/client", 0, dnsconfig.Glibc, "found", 0, "", ""},
		{"postgres.data.svc.cluster.local", "shop/client", 0, dnsconfig.Glibc, "found", 8, "many-queries", "postgres.data.svc.cluster.local."},
		{"postgres.data", "shop/client", 0, dnsconfig.Glibc, "found", 4, "", ""},
		{"postgres", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "other-namespace", "postgres.data"},
		{"postgres.date", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "no-namespace", "postgres.data"},
		{"cart", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "service-no-ready-endpoint", ""},
		{"search", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "service-selects-no-pod", ""},
		{"_smtp._tcp.mail.shop.svc.cluster.local.", "shop/client", dnswire.TypeSRV, dnsconfig.Glibc, "no such name", 1, "service-port-unnamed", ""},
		{"_https._tcp.web", "shop/client", dnswire.TypeSRV, dnsconfig.Glibc, "no such name", 4, "no-port", ""},
		{"_http._udp.web", "shop/client", dnswire.TypeSRV, dnsconfig.Glibc, "no such name", 4, "port-protocol", "_http._tcp"},
		{"bank", "shop/client", dnswire.TypeA, dnsconfig.Glibc, "", -1, "externalname-address", ""},
		{"queue-0.queue", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "pod-subdomain-no-service", ""},
		{"worker-a.workers", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "pod-subdomain-no-hostname", ""},
		{"a.web", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "host-of-cluster-ip", "headless"},
		{"gifts", "shop/client", 0, dnsconfig.Glibc, "found", 2, "service-selects-no-pod", ""},
		{"wbe", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "typo", "web"},
		{"nothing", "shop/client", 0, dnsconfig.Glibc, "no such name", 8, "no-service", "gifts"},
		{"web", "shop/client", dnswire.TypeAAAA, dnsconfig.Glibc, "no data", -1, "other-family", "dual-stack"},
		{"postgres.data", "shop/client", dnswire.TypeAAAA, dnsconfig.Musl, "no such name", 2, "other-family", ""},
		{"web", "shop/report", 0, dnsconfig.Glibc, "no such name", -1, "not-cluster-dns", "ClusterFirst"},
		{"postgres.data", "shop/deployment/ledger", 0, dnsconfig.Glibc, "blocked", 4, "network-policy-blocks-dns", ""},
		{"postgres.data", "shop/ledger", 0, dnsconfig.WindowsClient, "blocked", 2, "network-policy-blocks-dns", ""},
		{"postgres.data", "shop/client", 0, dnsconfig.WindowsClient, "no such name", 2, "resolver", "postgres.data.svc.cluster.local."},
		{"192.0.2.1", "shop/client", 0, dnsconfig.Glibc, "found", 0, "", ""},
		{"localhost", "shop/client", 0, dnsconfig.Glibc, "found", 0, "", ""},
		{"www.example.com", "shop/client", 0, dnsconfig.Glibc, "", -1, "outside", ""},
	}
	for _, test := range tests {
		q := Question{Name: test.name, Type: test.rrtype, Libc: test.libc, Subject: subject(t, d, test.from)}
		e := d.Explain(t.Context(), q)
		var text strings.Builder
		if err := e.WriteText(&text, explain.Style{}); err != nil {
			t.Fatal(err)
		}
		rule, cure := "", ""
		if len(e.Diagnoses) > 0 {
			rule, cure = e.Diagnoses[0].Rule, e.Diagnoses[0].Cure
		}
		if test.outcome != "" && e.Outcome != test.outcome || test.packets >= 0 && e.Packets != test.packets || rule != test.rule || !strings.Contains(cure, test.cure) {
			t.Errorf("%s from %s: want %q after %d packets, diagnosis %q with %q; got\n%s", test.name, test.from, test.outcome, test.packets, test.rule, test.cure, &text)
		}
	}
}

// TestExplainSearched checks that with one search domain a lookup sends one query of
// each type, that the cure of other lookups mentions it, and that the outcome for a
// name outside the cluster is marked as assumed.
func TestExplainSearched(t *testing.T) {
	d := trouble(t)
	for name, want := range map[string]string{
		"postgres.data":                   "found, after 2 packets",
		"postgres.data.svc.cluster.local": "found, after 2 packets",
		"www.example.com":                 "A, AAAA: NXDOMAIN (assumed: its search paths have no name of the cluster",
	} {
		client := subject(t, d, "shop/client")
		spec := *client.Spec // the model owns the original
		spec.DNSPolicy = string(dnsconfig.ClusterFirstWithAutopath)
		client.Spec = &spec
		var text strings.Builder
		if err := d.Explain(t.Context(), Question{Name: name, Libc: dnsconfig.Glibc, Subject: client}).WriteText(&text, explain.Style{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s: want %q in\n%s", name, want, &text)
		}
	}
	e := d.Explain(t.Context(), Question{Name: "postgres.data.svc.cluster.local", Libc: dnsconfig.Glibc, Subject: subject(t, d, "shop/client")})
	if want := "or, with the webhook, give the Pod the policy ClusterFirstWithAutopath, with which the server applies the search list (docs/webhook.md): 2 packets"; len(e.Diagnoses) != 1 || !strings.Contains(e.Diagnoses[0].Cure, want) {
		t.Errorf("diagnoses %+v, want %q", e.Diagnoses, want)
	}
}

// searched returns a Pod as the webhook changes it: one search domain replaces all
// others.
func searched(s dnsconfig.Subject) dnsconfig.Subject {
	spec := *s.Spec // the model owns the original
	spec.DNSPolicy = string(dnsconfig.None)
	spec.DNSConfig = &cluster.DNSConfig{Nameservers: []string{"169.254.20.10", "10.96.0.10"}, Searches: []string{"search.shop.cluster.local.ap.k8s.io"}}
	s.Spec = &spec
	return s
}

// TestExplainSearchedAlias checks that a search ends at an alias to a name outside the
// cluster, as a resolver's search does, and that a Pod that has the one search domain
// is not advised to change its policy.
func TestExplainSearchedAlias(t *testing.T) {
	c := config.Default()
	c.Manifests = "../../../examples/shop"
	d := newWorld(t, c)
	for name, want := range map[string]string{
		"payments":      "not known, after 2 packets: it is an alias of api.payments.example.com., which is outside the cluster",
		"payments.shop": "alias of payments.shop.svc.cluster.local., alias of api.payments.example.com. (",
		"elsewhere.org": "not known, after 4 packets: elsewhere.org. is outside the cluster",
	} {
		var text strings.Builder
		pod := searched(subject(t, d, "shop/deployment/web"))
		if err := d.Explain(t.Context(), Question{Name: name, Libc: dnsconfig.Glibc, Subject: pod}).WriteText(&text, explain.Style{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), want) || strings.Contains(text.String(), "ClusterFirst") {
			t.Errorf("%s: want %q and no other policy in\n%s", name, want, &text)
		}
	}
}

// TestExplainSuppressed checks that a type that dns.suppress lists is explained as such, for
// a name outside the cluster and for an alias of one, and that aliases whose targets were not
// looked up are not known to resolve.
func TestExplainSuppressed(t *testing.T) {
	c := config.Default()
	c.Manifests = "../../../examples/shop"
	c.DNS.Suppress = []dnssettings.Suppress{{Types: []string{"AAAA"}}}
	alone := newWorld(t, c)
	c.DNS.Forward.Routes = []dnssettings.Route{{Upstreams: []string{"192.0.2.53"}}}
	d := newWorld(t, c)
	for claim, test := range map[string]struct {
		world         *world
		name          string
		rrtype        dnswire.Type
		libc          dnsconfig.Libc
		outcome, rule string
		text          string
	}{
		"a name outside": {d, "www.example.com.", dnswire.TypeAAAA, dnsconfig.Glibc, "no data", "suppressed",
			"www.example.com. is outside the cluster, and dns.suppress has it answered with no AAAA records"},
		"a name outside, tried first": {d, "a.b.c.d.example.com", dnswire.TypeAAAA, dnsconfig.Musl, "", "suppressed", "a.b.c.d.example.com. is"},
		"a name outside, both families": {d, "www.example.com.", 0, dnsconfig.Glibc, "not known", "outside",
			"AAAA at 10.96.0.10: NODATA (dns.suppress lists this type for names outside the cluster)"},
		"a name outside, another type": {d, "www.example.com.", dnswire.TypeA, dnsconfig.Glibc, "not known", "outside", "assumed"},
		"an alias": {d, "payments", dnswire.TypeAAAA, dnsconfig.Musl, "", "suppressed",
			"api.payments.example.com. is outside the cluster, and dns.suppress"},
		"an alias, both families": {d, "payments", 0, dnsconfig.Glibc, "not known", "outside",
			"it is an alias of api.payments.example.com., which is outside the cluster, and no server was queried"},
		"nothing is forwarded":  {alone, "www.example.com.", dnswire.TypeAAAA, dnsconfig.Glibc, "not known", "outside", "assumed"},
		"a name of the cluster": {d, "web", 0, dnsconfig.Glibc, "found", "", "found, after"},
	} {
		e := test.world.Explain(t.Context(), Question{
			Name: test.name, Type: test.rrtype, Libc: test.libc, Subject: subject(t, test.world, "shop/deployment/web"),
		})
		var text strings.Builder
		if err := e.WriteText(&text, explain.Style{}); err != nil {
			t.Fatal(err)
		}
		rule := ""
		if len(e.Diagnoses) > 0 {
			rule = e.Diagnoses[0].Rule
		}
		if test.outcome != "" && e.Outcome != test.outcome || rule != test.rule || e.Found() != (test.outcome == "found") ||
			!strings.Contains(text.String(), test.text) {
			t.Errorf("%s: %s, rule %q; want %q, rule %q and %q in\n%s", claim, e.Outcome, rule, test.outcome, test.rule,
				test.text, &text)
		}
	}
}

// TestExplainSearchedDiagnosis checks that a name with search paths has the same
// diagnosis as with ClusterFirst.
func TestExplainSearchedDiagnosis(t *testing.T) {
	d := trouble(t)
	for _, test := range []struct {
		name    string
		rrtype  dnswire.Type
		outcome string
	}{
		{"search", 0, "no such name"},
		{"cart", 0, "no such name"},
		{"postgres", 0, "no such name"},
		{"postgres.date", 0, "no such name"},
		{"_https._tcp.web", dnswire.TypeSRV, "no such name"},
		{"worker-a.workers", 0, "no such name"},
		{"gifts", 0, "found"},
		{"wbe", 0, "no such name"},
		{"nothing", 0, "no such name"},
		{"web", dnswire.TypeAAAA, "no such name"}, // as glibc treats an alias without records
		{"postgres.data", dnswire.TypeAAAA, "no such name"},
		{"www.example.com", 0, "not known"},
	} {
		q := Question{Name: test.name, Type: test.rrtype, Libc: dnsconfig.Glibc, Subject: subject(t, d, "shop/client")}
		usual := d.Explain(t.Context(), q)
		q.Subject = searched(q.Subject)
		e := d.Explain(t.Context(), q)
		if len(e.Diagnoses) == 0 || len(usual.Diagnoses) == 0 {
			t.Errorf("%s: diagnoses %+v, with ClusterFirst %+v", test.name, e.Diagnoses, usual.Diagnoses)
			continue
		}
		if e.Outcome != test.outcome || e.Diagnoses[0] != usual.Diagnoses[0] {
			t.Errorf("%s: %s, %+v; want %s, as with ClusterFirst %+v", test.name, e.Outcome, e.Diagnoses[0], test.outcome, usual.Diagnoses[0])
		}
	}
}

// TestResolvConf checks that a Pod gets the DNS Service's address and the node's search
// domains.
func TestResolvConf(t *testing.T) {
	d := trouble(t)
	pod := subject(t, d, "shop/client")
	node := NodeSettings{ResolvConf: &resolvconf.Config{Searches: []string{"corp.example"}}}
	const search = "search shop.svc.cluster.local svc.cluster.local cluster.local corp.example\noptions ndots:5\n"
	if got, want := d.ResolvConf(&pod, node).Config.String(), "nameserver 10.96.0.10\n"+search; got != want {
		t.Errorf("ResolvConf = %q, want %q", got, want)
	}
	node.ClusterDNS = []netip.Addr{netip.MustParseAddr("fd00::a")}
	if got, want := d.ResolvConf(&pod, node).Config.String(), "nameserver fd00::a\n"+search; got != want {
		t.Errorf("with the address given: %q, want %q", got, want)
	}
	if _, assumed := d.AssumedDNS(NodeSettings{}); assumed {
		t.Error("the address is assumed, though there is a DNS Service")
	}
}

const unmade = `
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: sql, port: 5432}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec: {serviceName: db, template: {metadata: {labels: {app: db}}, spec: {}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: mq, namespace: shop}
spec: {serviceName: mq-headless, template: {metadata: {labels: {app: mq}}, spec: {}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: db}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: only, namespace: data}
spec: {clusterIP: 10.96.7.7, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: cached, namespace: shop}
spec: {dnsPolicy: None, dnsConfig: {nameservers: [169.254.20.10], searches: [shop.svc.cluster.local, svc.cluster.local, cluster.local], options: [{name: ndots, value: "5"}]}}
`

// TestExplainManifests checks that manifests are not blamed for objects that a control
// plane would create, that names outside the cluster are not said to be absent, and
// that each name suggested by a cure resolves.
func TestExplainManifests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(unmade), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Manifests = file
	d := newWorld(t, c)
	explain := func(name string, rrtype dnswire.Type, libc dnsconfig.Libc) *explain.Explanation {
		return d.Explain(t.Context(), Question{Name: name, Type: rrtype, Libc: libc, Subject: subject(t, d, "shop/client")})
	}
	cached := Question{Name: "only.data", Libc: dnsconfig.Glibc, Subject: subject(t, d, "shop/cached")}
	if e := d.Explain(t.Context(), cached); e.Outcome != "found" {
		t.Errorf("by a node's cache: %s, %+v; want found", e.Outcome, e.Diagnoses)
	}
	for _, test := range []struct {
		name    string
		rrtype  dnswire.Type
		libc    dnsconfig.Libc
		outcome string
		rule    string
	}{
		{"outside", 0, dnsconfig.Glibc, "not known", "outside"},
		{"db", 0, dnsconfig.Glibc, "no such name", "no-endpoint-slice"},
		{"db-0.db", 0, dnsconfig.Glibc, "no such name", "no-endpoint-slice"},
		{"_sql._tcp.db", dnswire.TypeSRV, dnsconfig.Glibc, "no such name", "no-endpoint-slice"},
		{"_sql._tcp.db", 0, dnsconfig.Glibc, "no such name", "not-srv"},
		{"mq-0.mq", 0, dnsconfig.Glibc, "no such name", "statefulset-service-missing"},
		{"web", 0, dnsconfig.Glibc, "no data", "no-cluster-ip"},
		{"github.com", 0, dnsconfig.Glibc, "not known", "outside"},
		{"www.example.com", 0, dnsconfig.Musl, "not known", "outside"},
		{"only", 0, dnsconfig.Glibc, "no such name", "other-namespace"},
		{"only", 0, dnsconfig.WindowsClient, "no such name", "other-namespace"},
		{"onyl.data", 0, dnsconfig.Musl, "no such name", "typo"},
		{"only.date", 0, dnsconfig.GoResolver, "no such name", "no-namespace"},
		{"only.data.", 0, dnsconfig.Glibc, "no such name", "trailing-dot"},
		{"only.data.cluster.local", 0, dnsconfig.Glibc, "no such name", "no-meaning"},
		{"kubernetes.default", 0, dnsconfig.Glibc, "no such name", "no-service"},
		{"http://web", 0, dnsconfig.Glibc, "no such name", "invalid-hostname"},
		{"client", dnswire.TypeSRV, dnsconfig.Glibc, "no such name", "pod-name"},
	} {
		e := explain(test.name, test.rrtype, test.libc)
		rule, cure := "", ""
		if len(e.Diagnoses) > 0 {
			rule, cure = e.Diagnoses[0].Rule, e.Diagnoses[0].Cure
		}
		if e.Outcome != test.outcome || rule != test.rule {
			t.Errorf("%s, %s: %q, diagnosis %q; want %q, %q", test.name, e.Resolver, e.Outcome, rule, test.outcome, test.rule)
		}
		if _, quoted, asks := strings.Cut(cure, `ask for "`); asks {
			name, _, _ := strings.Cut(quoted, `"`)
			if again := explain(name, test.rrtype, test.libc); !again.Found() {
				t.Errorf("%s, %s: the cure is %s, and %s is %s", test.name, e.Resolver, cure, name, again.Outcome)
			}
		}
	}
}
