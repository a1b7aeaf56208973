package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// vips are the addresses of Services.
var vips = map[Family]netip.Addr{IPv4: netip.MustParseAddr("10.96.0.10"), IPv6: netip.MustParseAddr("fd00:96::a")}

func front(at frontend.Address, to ...netip.AddrPort) *frontend.Frontend {
	f := &frontend.Frontend{Address: at, Endpoints: to}
	if at.Addr == nodeAddr[scopeOf(at).family] {
		f.Policy = frontend.External
	}
	return f
}

// goneWithin is the time after which a removed endpoint gets no packets any more.
const goneWithin = 200 * time.Millisecond

// TestFlowsMove has a client send from one port before and after a change.
func TestFlowsMove(t *testing.T) {
	w := onNode(t, Config{})
	if w == nil {
		return
	}
	for _, f := range families {
		a, b := serve(t, w.a, f), serve(t, w.b, f)
		for name, addr := range map[string]netip.Addr{"cluster IP": vips[f], "node port": nodeAddr[f]} {
			at := frontend.Address{Addr: addr, Protocol: frontend.UDP, Port: 53}
			tests := map[string]struct {
				before []netip.AddrPort // nil: there is no Service
				change func() []Target
				to     *server // nil: nowhere
			}{
				"a client of a removed endpoint moves to the others": {
					before: []netip.AddrPort{a.addr},
					change: func() []Target { return w.put(t, front(at, b.addr)) },
					to:     b,
				},
				"a client of a deleted Service reaches no endpoint": {
					before: []netip.AddrPort{a.addr},
					change: func() []Target { return w.delete(t, at) },
				},
				"a client of a Service that lost its last endpoint reaches none": {
					before: []netip.AddrPort{a.addr},
					change: func() []Target { return w.put(t, front(at)) },
				},
				"a client that was there before the Service reaches its first endpoint": {
					change: func() []Target { return w.put(t, front(at, b.addr)) },
					to:     b,
				},
			}
			for claim, tt := range tests {
				t.Run(f.String()+", "+name+": "+claim, func(t *testing.T) {
					from := &server{}
					w.delete(t, at)
					if tt.before != nil {
						w.put(t, front(at, tt.before...))
						from = a
					}
					answers, stop := talk(t, w.client, netip.AddrPortFrom(at.Addr, at.Port))
					defer stop()
					untilStuck(t, from, answers.Load, w, at)
					targets := tt.change()
					if tt.before != nil { // the flow is stale now
						seen := a.count.Load()
						until(t, "the entry keeps the flow at the old endpoint", func() bool { return a.count.Load() > seen+20 })
					}
					changed := time.Now()
					w.cleaner.Changed(targets)
					if tt.to != nil {
						seen, before := tt.to.count.Load(), answers.Load()
						until(t, "packets to the new endpoint", func() bool { return tt.to.count.Load() > seen && answers.Load() > before })
						t.Logf("the first packet reached the new endpoint after at most %v", time.Since(changed))
					}
					until(t, "time to see late packets", func() bool { return time.Since(changed) > 2*goneWithin })
					if last := time.Unix(0, a.last.Load()); last.Sub(changed) > goneWithin {
						t.Errorf("%s: the removed endpoint got a packet %v after the change", at, last.Sub(changed))
					}
				})
			}
		}
	}
}

// untilStuck waits until a flow has an entry: with replies from a server, or without an
// endpoint.
func untilStuck(t *testing.T, from *server, answers func() uint64, w *world, at frontend.Address) {
	t.Helper()
	if from.addr.IsValid() {
		until(t, "answers", func() bool { return answers() > 20 })
		return
	}
	until(t, "an entry without endpoint", func() bool {
		for _, e := range tracked(t, scopeOf(at)) {
			if e.destination == at && !e.translated() {
				return true
			}
		}
		return false
	})
}
