package conntrack

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// vips are the addresses of Services.
var vips = map[ctnetlink.Family]netip.Addr{ctnetlink.IPv4: netip.MustParseAddr("10.96.0.10"), ctnetlink.IPv6: netip.MustParseAddr("fd00:96::a")}

func front(at frontend.Address, to ...netip.AddrPort) *frontend.Frontend {
	f := &frontend.Frontend{Address: at, Endpoints: to}
	if at.Addr == nodeAddr[scopeOf(at).family] {
		f.Policy = frontend.External
	}
	return f
}

// next returns the next cluster IP: packets to undefined ports of one are refused. The node's
// address is one for all.
func next(addr netip.Addr) netip.Addr {
	if addr == nodeAddr[ctnetlink.IPv4] || addr == nodeAddr[ctnetlink.IPv6] {
		return addr
	}
	return addr.Next()
}

// isDue reports whether flows to a frontend are to be looked at.
func (c *Cleaner) isDue(at frontend.Address) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue[at] != nil
}

// TestFlowsMove has clients send from one port before and after a change.
func TestFlowsMove(t *testing.T) {
	t.Parallel()
	w := onNode(t, Config{})
	if w == nil {
		return
	}
	tests := map[string]struct {
		service bool // before the change
		change  func(at frontend.Address, b *server) []Target
		moves   bool
	}{
		"a client of a removed endpoint moves to the others": {
			service: true, moves: true,
			change: func(at frontend.Address, b *server) []Target { return w.put(t, front(at, b.addr)) },
		},
		"a client of a deleted Service reaches no endpoint": {
			service: true,
			change:  func(at frontend.Address, _ *server) []Target { return w.delete(t, at) },
		},
		"a client of a Service that lost its last endpoint reaches none": {
			service: true,
			change:  func(at frontend.Address, _ *server) []Target { return w.put(t, front(at)) },
		},
		"a client that was there before the Service reaches its first endpoint": {
			moves:  true,
			change: func(at frontend.Address, b *server) []Target { return w.put(t, front(at, b.addr)) },
		},
	}
	port := uint16(1000)
	for _, f := range families {
		for name, addr := range map[string]netip.Addr{"cluster IP": vips[f], "node port": nodeAddr[f]} {
			for claim, tt := range tests {
				port, addr = port+1, next(addr)
				at := frontend.Address{Addr: addr, Protocol: frontend.UDP, Port: port}
				t.Run(f.String()+", "+name+": "+claim, func(t *testing.T) {
					t.Parallel()
					a, b := serve(t, w.a, netip.AddrPortFrom(w.a.addr[f], at.Port)), serve(t, w.b, netip.AddrPortFrom(w.b.addr[f], at.Port))
					if tt.service {
						w.put(t, front(at, a.addr))
					}
					sent, answers := talk(t, w.client, netip.AddrPortFrom(at.Addr, at.Port))
					if tt.service {
						until(t, "answers", func() bool { return answers.Load() > 20 })
					} else {
						until(t, "an entry without endpoint", func() bool {
							return slices.ContainsFunc(tracked(t, scopeOf(at)), func(e entry) bool { return e.destination == at })
						})
					}
					targets := tt.change(at, b)
					if tt.service {
						seen := a.count.Load()
						until(t, "the entry keeps the flow at the old endpoint", func() bool { return a.count.Load() > seen+20 })
					}
					changed := time.Now()
					w.cleaner.Changed(targets)
					if tt.moves {
						until(t, "packets to the new endpoint", func() bool { return b.count.Load() > 0 })
						t.Logf("the first packet reached the new endpoint after %v", time.Since(changed))
						before := answers.Load()
						until(t, "its answers", func() bool { return answers.Load() > before+20 })
					}
					until(t, "the Cleaner looked twice", func() bool { return !w.cleaner.isDue(at) })
					if tt.service {
						t.Logf("the last packet reached the old endpoint after %v", time.Unix(0, a.last.Load()).Sub(changed))
					}
					seen, then := a.count.Load(), sent.Load()
					until(t, "more packets", func() bool { return sent.Load() > then+100 })
					if late := a.count.Load() - seen; late > 0 {
						t.Errorf("%s: the old endpoint got %d packets of 100 after the Cleaner looked", at, late)
					}
				})
			}
		}
	}
}
