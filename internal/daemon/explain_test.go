package daemon_test

import (
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/explain"
	"portolan.dev/portolan/internal/podresolv"
	"portolan.dev/portolan/internal/resolvconf"
)

// trouble reads the example in which each name fails for another reason.
func trouble(t *testing.T) *daemon.Daemon {
	t.Helper()
	c := config.Default()
	c.Manifests = "../../examples/trouble"
	d := newDaemon(t, c)
	l, err := d.Load(t.Context(), "test", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Problems {
		t.Error(p)
	}
	return d
}

func subject(t *testing.T, d *daemon.Daemon, reference string) podresolv.Subject {
	t.Helper()
	r, err := podresolv.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Subject(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestExplain: each name of the example ends as it should, and the first
// diagnosis is the right one.
func TestExplain(t *testing.T) {
	d := trouble(t)
	tests := []struct {
		name, from string
		rrtype     dnswire.Type
		libc       podresolv.Libc
		outcome    string
		packets    int
		rule       string // "" is no diagnosis
		cure       string // a part of it
	}{
		{"web", "shop/client", 0, podresolv.Glibc, "found", 2, "", ""},
		{"web", "shop/client", 0, podresolv.Musl, "found", 2, "", ""},
		{"web", "shop/client", 0, podresolv.GoResolver, "found", 2, "", ""},
		{"web", "shop/client", 0, podresolv.WindowsClient, "found", 2, "", ""},
		{"client", "shop/client", 0, podresolv.Glibc, "found", 0, "", ""},
		{"postgres.data.svc.cluster.local", "shop/client", 0, podresolv.Glibc, "found", 8, "many-queries", "postgres.data.svc.cluster.local."},
		{"postgres.data", "shop/client", 0, podresolv.Glibc, "found", 4, "", ""},
		{"postgres", "shop/client", 0, podresolv.Glibc, "no such name", 8, "other-namespace", "postgres.data"},
		{"postgres.date", "shop/client", 0, podresolv.Glibc, "no such name", 8, "no-namespace", "postgres.data"},
		{"cart", "shop/client", 0, podresolv.Glibc, "no such name", 8, "service-no-ready-endpoint", ""},
		{"search", "shop/client", 0, podresolv.Glibc, "no such name", 8, "service-selects-no-pod", ""},
		{"_smtp._tcp.mail.shop.svc.cluster.local.", "shop/client", dnswire.TypeSRV, podresolv.Glibc, "no such name", 1, "service-port-unnamed", ""},
		{"_https._tcp.web", "shop/client", dnswire.TypeSRV, podresolv.Glibc, "no such name", 4, "no-port", ""},
		{"_http._udp.web", "shop/client", dnswire.TypeSRV, podresolv.Glibc, "no such name", 4, "port-protocol", "_http._tcp"},
		{"bank", "shop/client", dnswire.TypeA, podresolv.Glibc, "", -1, "externalname-address", ""},
		{"queue-0.queue", "shop/client", 0, podresolv.Glibc, "no such name", 8, "pod-subdomain-no-service", ""},
		{"worker-a.workers", "shop/client", 0, podresolv.Glibc, "no such name", 8, "pod-subdomain-no-hostname", ""},
		{"a.web", "shop/client", 0, podresolv.Glibc, "no such name", 8, "host-of-cluster-ip", "headless"},
		{"gifts", "shop/client", 0, podresolv.Glibc, "found", 2, "service-selects-no-pod", ""},
		{"wbe", "shop/client", 0, podresolv.Glibc, "no such name", 8, "slip", "web"},
		{"nothing", "shop/client", 0, podresolv.Glibc, "no such name", 8, "no-service", "gifts"},
		{"web", "shop/client", dnswire.TypeAAAA, podresolv.Glibc, "no data", -1, "other-family", "dual-stack"},
		{"postgres.data", "shop/client", dnswire.TypeAAAA, podresolv.Musl, "no such name", 2, "other-family", ""},
		{"web", "shop/report", 0, podresolv.Glibc, "no such name", -1, "not-cluster-dns", "ClusterFirst"},
		{"postgres.data", "shop/deployment/ledger", 0, podresolv.Glibc, "found", 4, "network-policy-blocks-dns", ""},
		{"postgres.data", "shop/ledger", 0, podresolv.WindowsClient, "no such name", 2, "network-policy-blocks-dns", ""},
		{"postgres.data", "shop/client", 0, podresolv.WindowsClient, "no such name", 2, "resolver", "postgres.data.svc.cluster.local."},
		{"192.0.2.1", "shop/client", 0, podresolv.Glibc, "found", 0, "", ""},
		{"localhost", "shop/client", 0, podresolv.Glibc, "found", 0, "", ""},
		{"www.example.com", "shop/client", 0, podresolv.Glibc, "", -1, "outside", ""},
	}
	for _, test := range tests {
		q := daemon.Question{Name: test.name, Type: test.rrtype, Libc: test.libc, Subject: subject(t, d, test.from)}
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

// TestResolvConf: a Pod gets the DNS Service's address, and the node's domains.
func TestResolvConf(t *testing.T) {
	d := trouble(t)
	pod := subject(t, d, "shop/client")
	node := daemon.NodeSettings{ResolvConf: &resolvconf.Config{Searches: []string{"corp.example"}}}
	const search = "search shop.svc.cluster.local svc.cluster.local cluster.local corp.example\noptions ndots:5\n"
	if got, want := d.ResolvConf(&pod, node).Config.String(), "nameserver 10.96.0.10\n"+search; got != want {
		t.Errorf("ResolvConf = %q, want %q", got, want)
	}
	node.ClusterDNS = []netip.Addr{netip.MustParseAddr("fd00::a")}
	if got, want := d.ResolvConf(&pod, node).Config.String(), "nameserver fd00::a\n"+search; got != want {
		t.Errorf("with the address given: %q, want %q", got, want)
	}
	if _, assumed := d.AssumedDNS(daemon.NodeSettings{}); assumed {
		t.Error("the address is assumed, though there is a DNS Service")
	}
}
