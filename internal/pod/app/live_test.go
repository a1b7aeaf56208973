package app

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/live"
	"portolan.dev/portolan/internal/pod/path"
)

// refusing is a network where nothing listens.
type refusing struct{}

func (refusing) Dial(context.Context, string, netip.AddrPort) (net.Conn, error) {
	return nil, syscall.ECONNREFUSED
}

// TestLookupSentFrom: the explanation says where the lookup was sent from, and which server was asked.
func TestLookupSentFrom(t *testing.T) {
	t.Parallel()
	const stated, named = "127.0.0.1:1053", "--server"
	elsewhere := live.Origin{From: "pod shop/client", Why: "it is elsewhere"}
	atHand := live.Origin{From: "pod shop/client, network namespace n", Dialer: refusing{}}
	here := "this machine, not from pod shop/client"
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	subject, err := w.Subject(dnsconfig.Reference{Namespace: "shop", Name: "client"})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		origin   live.Origin
		server   string
		connects bool
		from     string
		silent   string // the server that does not answer
		likely   string
	}{
		"of a Pod elsewhere": {
			elsewhere, "", false, here, "10.96.0.10",
			"this machine sent the queries, and may not reach the cluster's DNS; --server names an address that it reaches",
		},
		"of a Pod elsewhere, to a server that is named": {
			elsewhere, stated, false, here, stated, "no DNS server answers at " + stated + ", which --server names",
		},
		"of a Pod at hand": {
			atHand, "", false, atHand.From, "10.96.0.10",
			"the servers of the Pod's resolv.conf do not run, or its packets do not reach them",
		},
		"of a Pod at hand, to a server that is named": {
			atHand, stated, false, here, stated, "no DNS server answers at " + stated + ", which --server names",
		},
		"of a Pod at hand, which connects": {
			atHand, stated, true, atHand.From + "; the lookup from this machine, as --server has it", stated,
			"no DNS server answers at " + stated + ", which --server names",
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			p := Packets{Sending: Sending{Dialer: refusing{}}, Origin: &test.origin}
			if test.server != "" {
				p.Server = netip.MustParseAddrPort(test.server)
			}
			q := Question{Name: "web", Subject: subject, Libc: dnsconfig.Glibc}
			e, err := w.LiveName(t.Context(), q, p)
			if test.connects {
				target := connection.Target{Host: "web", Port: "80"}
				e, err = w.Live(t.Context(), Way{Client: &connection.Client{Subject: subject}, Target: target, DNS: q}, p)
			}
			if err != nil {
				t.Fatal(err)
			}
			likely := strings.Join(e.Step(path.Name).Live.Likely, "\n")
			if e.Live.From != test.from || likely != test.likely {
				t.Errorf("sent from %q, likely %q, want %q, %q", e.Live.From, likely, test.from, test.likely)
			}
			var text strings.Builder
			if err := e.WriteText(&text, explain.Style{}); err != nil {
				t.Fatal(err)
			}
			if want := test.silent + " does not answer (UNREACHABLE)"; !strings.Contains(text.String(), want) {
				t.Errorf("the explanation does not say %q:\n%s", want, &text)
			}
			if test.server != "" && strings.Contains(text.String(), "at 10.96.0.10") {
				t.Errorf("the explanation blames a server that was not asked:\n%s", &text)
			}
		})
	}
}
