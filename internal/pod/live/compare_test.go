package live

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/path"
)

// dials has what becomes of connections to addresses; others have no answer.
type dials map[string]error

func (d dials) Dial(_ context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
	err, ok := d[to.String()]
	switch {
	case !ok:
		return nil, os.ErrDeadlineExceeded
	case err != nil:
		return nil, err
	}
	near, far := net.Pipe()
	far.Close()
	return near, nil
}

// The addresses of a Service and of its endpoints.
const (
	vip  = "10.96.0.1:80"
	pod1 = "10.244.0.1:8080"
	pod2 = "10.244.0.2:8080"
)

// use is an endpoint that is used, and that policies deny or not.
func use(address string, allowed bool) connection.Use {
	r := &connection.Ruling{Allowed: allowed}
	return connection.Use{Address: address, Used: true, Egress: r, Ingress: &connection.Ruling{Allowed: true}}
}

// TestLayers: which layer differs, by the model and by what became of the packets.
func TestLayers(t *testing.T) {
	t.Parallel()
	refusal := error(syscall.ECONNREFUSED)
	tests := map[string]struct {
		outcome         string
		uses            []connection.Use
		dials           dials
		service, policy string // agrees, differs or nothing
		likely          string
	}{
		"it connects, as the model says": {
			connection.Connected, []connection.Use{use(pod1, true)}, dials{vip: nil, pod1: nil}, "agrees", "agrees", "",
		},
		"no program listens at the endpoint": {
			connection.Connected, []connection.Use{use(pod1, true)}, dials{vip: refusal, pod1: refusal},
			"differs", "agrees", "no program listens at " + pod1,
		},
		"the proxy does not know the endpoint": {
			connection.Connected, []connection.Use{use(pod1, true)}, dials{vip: refusal, pod1: nil},
			"differs", "agrees", staleProxy,
		},
		"packets to an endpoint that policies allow are lost": {
			connection.Connected, []connection.Use{use(pod1, true)}, dials{}, "", "differs", foreign,
		},
		"policies deny it, and packets are lost": {
			connection.TimedOut, []connection.Use{use(pod1, false)}, dials{}, "", "agrees", "",
		},
		"policies deny it, and it connects": {
			connection.TimedOut, []connection.Use{use(pod1, false)}, dials{vip: nil, pod1: nil}, "agrees", "differs", unenforced,
		},
		"policies deny it, and a program refuses it": {
			connection.TimedOut, []connection.Use{use(pod1, false)}, dials{pod1: refusal}, "", "differs", unenforced,
		},
		"policies deny one of two endpoints": {
			connection.Connected, []connection.Use{use(pod1, false), use(pod2, true)}, dials{pod2: nil}, "", "agrees", "",
		},
		"there is no endpoint": {connection.Refused, nil, dials{vip: refusal}, "agrees", "", ""},
		"there is no endpoint in the model, and it connects": {
			connection.Refused, nil, dials{vip: nil}, "differs", "", staleProxy,
		},
		"no route leads there": {
			connection.TimedOut, nil, dials{vip: syscall.EHOSTUNREACH}, "agrees", "", "",
		},
		"what answers is not known": {connection.NotKnown, nil, dials{vip: nil}, "", "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &path.Explanation{
				Steps: []path.Step{{Layer: path.Service}, {Layer: path.Policy}},
				Connection: &connection.Explanation{Attempts: []connection.Attempt{
					{Address: vip + "/tcp", Service: "shop/web", Outcome: test.outcome, Endpoints: test.uses},
				}},
			}
			Compare(t.Context(), &Request{
				Explanation: e, Origin: &Origin{From: "here", Dialer: test.dials}, Client: new(connection.Client),
			})
			var likely []string
			for i, want := range []string{test.service, test.policy} {
				l := e.Steps[i].Live
				if got := stateOf(l); got != want {
					t.Errorf("Compare(%+v) of %s %q: %q, %+v, want %q", test.dials, e.Steps[i].Layer, test.outcome, got, l, want)
				}
				likely = append(likely, l.Likely...)
			}
			if test.likely != "" && !slices.Contains(likely, test.likely) || test.likely == "" && len(likely) > 0 {
				t.Errorf("likely %q, want %q", likely, test.likely)
			}
			if differs := test.service == "differs" || test.policy == "differs"; differs != (e.Differs() != "") {
				t.Errorf("Differs() = %q", e.Differs())
			}
		})
	}
}

func stateOf(l *path.Live) string {
	switch {
	case l.Differs():
		return "differs"
	case l.Agrees != nil:
		return "agrees"
	}
	return ""
}

// TestDatagrams: silence at the address of a Service says nothing, unless each endpoint refuses what comes.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	refusal := error(syscall.ECONNREFUSED)
	for claim, test := range map[string]struct {
		dials dials
		want  string
	}{
		"all are silent":            {dials{}, ""},
		"one of two refuses":        {dials{pod1: refusal}, ""},
		"both refuse":               {dials{pod1: refusal, pod2: refusal}, "differs"},
		"both and the address, too": {dials{vip: refusal, pod1: refusal, pod2: refusal}, "differs"},
	} {
		e := &path.Explanation{
			Steps: []path.Step{{Layer: path.Service}, {Layer: path.Policy}},
			Connection: &connection.Explanation{Attempts: []connection.Attempt{{
				Address: vip + "/udp", Service: "shop/web", Outcome: connection.Connected,
				Endpoints: []connection.Use{use(pod1, true), use(pod2, true)},
			}}},
		}
		Compare(t.Context(), &Request{
			Explanation: e, Origin: &Origin{From: "here", Dialer: test.dials}, Client: new(connection.Client),
		})
		l := e.Steps[0].Live
		if got := stateOf(l); got != test.want {
			t.Errorf("%s: %q, %+v, want %q", claim, got, l, test.want)
		}
		if test.want != "" && !slices.Contains(l.Likely, "no program listens at "+pod1+", "+pod2) {
			t.Errorf("%s: likely %q", claim, l.Likely)
		}
	}
}

// TestNothingIsSent: where the client is not at hand, each layer says why.
func TestNothingIsSent(t *testing.T) {
	t.Parallel()
	client := &connection.Client{Place: connection.Outside, Addr: netip.MustParseAddr("198.51.100.200")}
	o, err := Find(client, "")
	if err != nil {
		t.Fatal(err)
	}
	e := &path.Explanation{Steps: []path.Step{{Layer: path.Service}}, Connection: new(connection.Explanation)}
	Compare(t.Context(), &Request{Explanation: e, Origin: o, Client: client})
	if why := e.Steps[0].Live.NotCompared; !strings.Contains(why, "does not have the address") || e.Live.Missing != why {
		t.Errorf("Compare without an origin: %q, %+v", why, e.Live)
	}
}

// TestOnNode: a client on a node is on this machine only if the node's address is this machine's.
func TestOnNode(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ node, addr, from, why string }{
		"this machine":              {"n1", "127.0.0.1", "this machine, node n1", ""},
		"another machine":           {"n1", "198.51.100.200", "node n1", "this machine is not node n1"},
		"a node of unknown address": {"n1", "", "node n1", "the address of node n1 is not known"},
		"no Node":                   {"", "", "a node", "no Node is known"},
	} {
		c := &connection.Client{Place: connection.OnNode, Node: test.node}
		c.Addr, _ = netip.ParseAddr(test.addr)
		o, err := Find(c, "")
		if err != nil || o.From != test.from || !strings.HasPrefix(o.Why, test.why) || (o.Dialer == nil) != (o.Why != "") ||
			(o.Why == "") != (test.why == "") {
			t.Errorf("%s: Find(%+v) = %+v, %v, want from %q, why %q", claim, c, o, err, test.from, test.why)
		}
	}
}

// TestNoAddress: where there is no address to send to, each layer says so.
func TestNoAddress(t *testing.T) {
	t.Parallel()
	const why = "no address of a gateway is known"
	e := &path.Explanation{Steps: []path.Step{{Layer: path.Service, State: path.NotKnown, Says: why}, {Layer: path.Route}}}
	Compare(t.Context(), &Request{Explanation: e, Origin: Here(), Client: new(connection.Client)})
	for _, s := range e.Steps {
		if s.Live == nil || s.Live.NotCompared != why {
			t.Errorf("Compare without an address: %s %+v, want that it is not compared: %s", s.Layer, s.Live, why)
		}
	}
}

// TestFindFile: a file that is no network namespace is an error.
func TestFindFile(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"/nonexistent", os.DevNull} {
		if _, err := Find(new(connection.Client), file); err == nil {
			t.Errorf("Find(%s) has no error", file)
		}
	}
}
