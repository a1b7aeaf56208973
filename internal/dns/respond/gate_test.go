package respond_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// seen is a Gate that remembers the names, and holds answers to names that begin with
// "held.".
type seen struct {
	names  []string
	waited int
}

func (s *seen) Hold(client netip.Addr, name, _ []byte) (wait func(context.Context)) {
	parsed, _, err := dnsname.FromWire(append(slices.Clone(name), 0))
	if err != nil {
		panic(err)
	}
	s.names = append(s.names, client.String()+" "+parsed.String())
	if !strings.HasPrefix(parsed.String(), "held.") {
		return nil
	}
	return func(context.Context) { s.waited++ }
}

// TestGate: the Gate sees the name that the client's addresses are of, for each answer of
// a type that has addresses, and holds answers back.
func TestGate(t *testing.T) {
	t.Parallel()
	upstreams := func(name string) []string {
		if strings.Contains(name, ".corp.") || strings.Contains(name, ".host.") { // the node's search paths
			return nil
		}
		return []string{name + " 300 CNAME to." + name, "to." + name + " 300 A 192.0.2.1"}
	}
	for claim, c := range map[string]struct {
		name    string
		qtype   dnswire.Type
		relayed bool   // searches
		want    string // the name that the Gate sees; none when empty
		waits   bool
	}{
		"a name of the cluster":      {name: "Web.shop.svc.cluster.local", want: "web.shop.svc.cluster.local."},
		"IPv6":                       {name: "web.shop.svc.cluster.local", qtype: dnswire.TypeAAAA, want: "web.shop.svc.cluster.local."},
		"a type without addresses":   {name: "web.shop.svc.cluster.local", qtype: dnswire.TypeSRV},
		"a name that does not exist": {name: "gone.shop.svc.cluster.local"},
		"a name of an upstream":      {name: "www.example", want: "www.example."},
		"a held name of an upstream": {name: "held.example", want: "held.example.", waits: true},
		"a search in the cluster": {
			name: "web.search.shop.cluster.local.ap.k8s.io", want: "web.shop.svc.cluster.local.",
		},
		"a search that finds the name as given": {
			name: "web.shop.svc.cluster.local.search.other.cluster.local.ap.k8s.io", want: "web.shop.svc.cluster.local.",
		},
		"a search by an upstream": {
			name: "web.search.shop.cluster.local.ap.k8s.io", relayed: true, want: "web.shop.svc.cluster.local.",
		},
		"a search by an upstream that finds the name as given": {
			name:    "web.shop.svc.cluster.local.search.other.cluster.local.ap.k8s.io",
			relayed: true, want: "web.shop.svc.cluster.local.",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			gate := new(seen)
			var w *respond.Worker
			if c.relayed {
				w = newRelaying(t, respond.RelayPaths, func(agent, _ *respond.Config) { agent.Gate = gate }).Worker
			} else {
				cfg := respond.Config{Data: exampleDB(t), Upstreams: upstreamThat(t, upstreams), Gate: gate}
				searchConfig(&cfg)
				w = newWorker(t, cfg)
			}
			packet := query(t, dnswire.QuerySpec{Name: c.name, Type: max(c.qtype, dnswire.TypeA), Flags: dnswire.FlagRD})
			var want []string
			waited := 0
			for range 2 { // from the upstream, and from the cache
				if answerNow(t, w, packet, make([]byte, 0, dnswire.MaxMessage)) == nil {
					t.Fatal("no answer")
				}
				if c.want != "" {
					want = append(want, "192.0.2.1 "+c.want)
				}
				if c.waits {
					waited++
				}
			}
			if !slices.Equal(gate.names, want) || gate.waited != waited {
				t.Errorf("the Gate sees %v, %d waited; want %v, %d", gate.names, gate.waited, want, waited)
			}
		})
	}
}

// TestHeldAnswer: an answer that is known at once waits, too, and is the same.
func TestHeldAnswer(t *testing.T) {
	t.Parallel()
	gate := new(seen)
	f := upstreamThat(t, func(name string) []string { return []string{name + " 300 A 192.0.2.1"} })
	w := newWorker(t, respond.Config{Data: exampleDB(t), Upstreams: f, Gate: gate})
	packet := query(t, dnswire.QuerySpec{Name: "held.example", Type: dnswire.TypeA, Flags: dnswire.FlagRD})
	buf := make([]byte, 0, dnswire.MaxMessage)
	first := answerNow(t, w, packet, buf)
	answer, deferred := w.Respond(packet, client, buf)
	if answer != nil || deferred == nil || gate.waited != 1 {
		t.Fatalf("Respond = %x, %v; %d waited", answer, deferred, gate.waited)
	}
	clear(buf[:cap(buf)]) // the server uses it for the next answer
	if answer = deferred.Answer(t.Context()); !slices.Equal(answer, first) || gate.waited != 2 {
		t.Errorf("the held answer is %x, %d waited; want %x", answer, gate.waited, first)
	}
}
