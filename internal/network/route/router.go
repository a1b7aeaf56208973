package route

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
)

// Config configures a Router.
type Config struct {
	// Log gets what the Router repairs; nil is nobody.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// routeKey, neighborKey and forwardKey are what the kernel identifies each by.
type routeKey struct {
	table int // not 0
	to    netip.Prefix
}

type neighborKey struct {
	device string
	addr   netip.Addr
}

type forwardKey struct {
	device string
	mac    MAC
}

// mainTable is RT_TABLE_MAIN of linux/rtnetlink.h.
const mainTable = 254

func (r Route) key() routeKey       { return routeKey{cmp.Or(r.Table, mainTable), r.To} }
func (n Neighbor) key() neighborKey { return neighborKey{n.Device, n.Addr} }
func (f Forward) key() forwardKey   { return forwardKey{f.Device, f.MAC} }

// wanted is what the kernel should have.
type wanted struct {
	local     Local
	peers     map[string]Peer
	routes    map[routeKey]Route
	neighbors map[neighborKey]Neighbor
	forwards  map[forwardKey]Forward
	// unreachable are those of peers.
	unreachable map[netip.Prefix]bool
}

func newWanted(p *Plan) *wanted {
	w := &wanted{
		p.Local, make(map[string]Peer), make(map[routeKey]Route), make(map[neighborKey]Neighbor),
		make(map[forwardKey]Forward), make(map[netip.Prefix]bool),
	}
	w.change(&Changes{Put: p.Peers})
	return w
}

// touched has what changes may change: what the kernel had of it; the zero value of those that are new.
type touched struct {
	routes    map[routeKey]Route
	neighbors map[neighborKey]Neighbor
	forwards  map[forwardKey]Forward
	// unreachable are those of peers.
	unreachable map[netip.Prefix]bool
}

// isUnreachable reports whether a range of the node's own Pods, or of a peer's, should be unreachable.
func (w *wanted) isUnreachable(p netip.Prefix) bool {
	return w.unreachable[p] || slices.Contains(w.local.Unreachable, p)
}

// change applies changes.
func (w *wanted) change(c *Changes) touched {
	t := touched{
		make(map[routeKey]Route), make(map[neighborKey]Neighbor), make(map[forwardKey]Forward), make(map[netip.Prefix]bool),
	}
	for _, name := range c.Delete {
		w.remove(w.peers[name], &t)
		delete(w.peers, name)
	}
	for _, p := range c.Put {
		w.remove(w.peers[p.Name], &t)
	}
	for _, p := range c.Put { // what one peer lost another may get
		w.peers[p.Name] = p
		for _, r := range p.Routes {
			put(w.routes, t.routes, r.key(), r)
		}
		for _, n := range p.Neighbors {
			put(w.neighbors, t.neighbors, n.key(), n)
		}
		for _, f := range p.Forwards {
			put(w.forwards, t.forwards, f.key(), f)
		}
		for _, u := range p.Unreachable {
			put(w.unreachable, t.unreachable, u, true)
		}
	}
	if c.Local != nil {
		w.local = *c.Local
	}
	return t
}

func put[K, V comparable](all, touched map[K]V, k K, v V) {
	if _, ok := touched[k]; !ok {
		touched[k] = all[k]
	}
	all[k] = v
}

func (w *wanted) remove(p Peer, t *touched) {
	for _, r := range p.Routes {
		drop(w.routes, t.routes, r.key())
	}
	for _, n := range p.Neighbors {
		drop(w.neighbors, t.neighbors, n.key())
	}
	for _, f := range p.Forwards {
		drop(w.forwards, t.forwards, f.key())
	}
	for _, u := range p.Unreachable {
		drop(w.unreachable, t.unreachable, u)
	}
}

func drop[K, V comparable](all, touched map[K]V, k K) {
	touched[k] = all[k]
	delete(all, k)
}
