package app

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/policy/flows"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// egressPolicy returns a policy that lets web-0 begin flows to some names only.
func egressPolicy(domains ...string) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "shop", Name: "egress"}, Egress: true}
	if len(domains) > 0 {
		p.EgressRules = []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Domains: domains}}}}
	}
	return p
}

// answer has the agent answer a query of web-0 for a name, or of another client.
func (w *world) answer(t *testing.T, name, addr string, client ...string) {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.TypeA)
	m.Response = true
	rr, err := dns.NewRR(dns.Fqdn(name) + " 5 A " + addr)
	if err != nil {
		t.Fatal(err)
	}
	m.Answer = []dns.RR{rr}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	wait := w.gate.Hold(
		netip.MustParseAddr(append(client, "10.0.0.1")[0]),
		[]byte(dnsname.MustParse(name).WireLabels()),
		packed,
	)
	if wait != nil {
		wait(t.Context())
	}
}

// cut returns which flows of web-0 to some servers are cut.
func (w *world) cut(servers ...string) (some []string) {
	synctest.Wait()
	var all []ruleset.Flow
	for _, s := range servers {
		all = append(all, ruleset.Flow{
			Protocol: ruleset.TCP,
			Client:   netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort(s),
		})
	}
	for _, d := range w.worker.denied(all) {
		some = append(some, servers[d.Flow])
	}
	return some
}

// runGate runs the gate until stop is called.
func (w *world) runGate(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.gate.Run(ctx)
	}()
	return func() { cancel(); <-ended }
}

// TestCutWithNames verifies which flows are cut of a Pod that may begin flows to names only: those to
// addresses that the names never had.
func TestCutWithNames(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		defer w.runGate(t)()
		const api, web, mail, db = "198.51.100.1:443", "198.51.100.2:443", "203.0.113.9:25", "10.0.7.7:5432"
		expect := func(when string, want ...string) {
			t.Helper()
			if got := w.cut(api, web, mail, db); !slices.Equal(got, want) {
				t.Errorf("%s the flows to %q are cut, want %q", when, got, want)
			}
		}
		w.load(webPod("u1"))
		w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		expect("without a policy")
		w.load(egressPolicy())
		expect("with egress closed", api, web, mail, db)
		w.load(egressPolicy("api.example.com"))
		expect("before the name is known", api, web, mail, db)
		w.answer(t, "api.example.com", "198.51.100.1")
		expect("after an answer", web, mail, db)
		time.Sleep(time.Hour)
		if s := w.gate.Stats(); s.Elements != 0 {
			t.Fatalf("the gate knows %d addresses, want them expired", s.Elements)
		}
		expect("after the address has expired", web, mail, db)
		w.load(egressPolicy("api.example.com", "*.example.org"))
		expect("after another name came", web, mail, db)
		w.answer(t, "web.example.org", "198.51.100.2")
		w.load(egressPolicy("*.example.org"))
		expect("after the name has gone", api, mail, db)
	})
}

// TestNamesOfOtherNamespaces verifies that an answer is for the rules of the client's Namespace.
func TestNamesOfOtherNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		defer w.runGate(t)()
		const otherPod = "10.0.0.2"
		of := func(namespace string, domains ...string) *cluster.NetworkPolicy {
			p := egressPolicy(domains...)
			p.Namespace = namespace
			return p
		}
		other, at := webPod("u2"), attachment("web-0", "u2", otherPod)
		other.Namespace, at.Namespace, at.ContainerID = "evil", "evil", "evil"
		known := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if s := w.gate.Stats(); s.Elements != want {
				t.Errorf("%s the gate knows %d addresses in sets, want %d", when, s.Elements, want)
			}
		}
		w.load(&cluster.Namespace{Name: "evil"}, webPod("u1"), of("shop", "api.example.com"), of("evil", "*.example.org"))
		w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		w.answer(t, "api.example.com", "198.51.100.9", otherPod)
		known("after an answer to no Pod", 0)
		w.load(other)
		w.admit(t, at)
		synctest.Wait()
		w.answer(t, "api.example.com", "198.51.100.9", otherPod)
		known("after an answer to the other namespace", 0)
		w.answer(t, "www.example.org", "198.51.100.9", otherPod)
		known("after an answer for its own rule", 1)
		w.answer(t, "www.example.org", "198.51.100.9")
		known("after the same answer to the first namespace", 1)
		w.load(of("shop", "api.example.com", "*.example.org"))
		w.answer(t, "www.example.org", "198.51.100.9")
		known("after its policy has the name", 2)
		w.load(of("evil", "*.example.org", "api.example.com")) // the same set, then
		w.answer(t, "api.example.com", "198.51.100.7", otherPod)
		known("after an answer for a set of both", 3)
	})
}

// TestCutAfterRestart verifies that addresses which a former process gave a set count.
func TestCutAfterRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		defer w.runGate(t)()
		const api, mail = "198.51.100.1:443", "203.0.113.9:25"
		if got := w.cut(api, mail); len(got) > 0 {
			t.Errorf("before the cluster is known, the flows to %q are cut", got)
		}
		w.table.resolved = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
		w.load(webPod("u1"), egressPolicy("api.example.com"))
		w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		if got, want := w.cut(api, mail), []string{mail}; !slices.Equal(got, want) {
			t.Errorf("the flows to %q are cut, want %q", got, want)
		}
	})
}

// TestCutShares verifies that a flow that is cut is of the share of the Namespace whose policy denies it.
func TestCutShares(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		client := webPod("u2")
		client.Key = cluster.Key{Namespace: "pay", Name: "client"}
		client.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
		w.load(webPod("u1"), &cluster.Namespace{Name: "pay"}, client)
		w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		synctest.Wait()
		flow := ruleset.Flow{
			Protocol: ruleset.TCP, Client: netip.MustParseAddrPort("10.0.0.2:40000"), Server: netip.MustParseAddrPort("10.0.0.1:80"),
		}
		expect := func(share string) {
			t.Helper()
			if got, want := w.worker.denied([]ruleset.Flow{flow}), []flows.Denial{{Share: share}}; !slices.Equal(got, want) {
				t.Errorf("denied(%v) = %+v, want %+v", flow, got, want)
			}
		}
		expect("shop") // closed for ingress
		w.load(&cluster.NetworkPolicy{Key: cluster.Key{Namespace: "pay", Name: "closed"}, Egress: true})
		expect("pay")
	})
}
