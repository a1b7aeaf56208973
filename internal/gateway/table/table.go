// Package table is what Ingresses, Gateways and HTTPRoutes are compiled into: which rule serves a
// request. It knows nothing of Kubernetes. A Table never changes; a change of the cluster makes
// another one, which shares all hosts that stay as they are.
//
//	request ──► Port
//	              └► Listener (most specific hostname), else that of Ingresses
//	                   └► Host (exact, else longest wildcard, else any)
//	                        └► path: exact, else regular expression, else longest prefix
//	                             └► method, headers, query: the first Route in order ──► Rule
//	server name ──► Port ──► Listener ──► certificate
//	             stream.go: └► Host ──► Rule of a TLSRoute, TCPRoute or UDPRoute
//
// The order is that of Gateway API (HTTPRouteRule.matches, v1). Ingress has the same one: a path that
// is equal to that of the request is also the longest.
package table

import (
	"crypto/tls"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Table finds the Rule of a request. The zero Table has none.
type Table struct {
	ports map[Socket]*Port
}

// Socket is an address and a port that connections, or datagrams, are accepted at. The zero Addr is that of the
// Gateways, and of the Ingresses, that have no address of their own.
type Socket struct {
	Addr      netip.Addr
	Port      uint16
	Transport Transport
}

// New returns a Table that serves these ports. It keeps the map.
func New(ports map[Socket]*Port) *Table { return &Table{ports} }

// Port returns what is served at a socket, nil if nothing is.
func (t *Table) Port(at Socket) *Port { return t.ports[at] }

// Sockets yields those that are served, in no order.
func (t *Table) Sockets() iter.Seq[Socket] { return maps.Keys(t.ports) }

// Port is the listeners of a port.
type Port struct {
	listeners names[*Listener]
	ingresses *Listener
	opening   Opening
	mixed     bool // a listener with TLS has another mode than Requests
}

// NewPort returns a Port with the listeners of Gateways, each with another hostname, and that of
// Ingresses, which may be nil.
func NewPort(listeners []*Listener, ingresses *Listener) *Port {
	p := &Port{ingresses: ingresses}
	for _, l := range listeners {
		p.listeners.set(l.Hostname, l)
		p.mixed = p.mixed || l.Mode != Requests
	}
	return p
}

// Find returns the route that serves a request for a name, see Port.Host, and its listener; route is nil
// if none does.
func (p *Port) Find(name string, r *Request) (l *Listener, route *Route) {
	l, h := p.Host(name)
	if l != nil && l.Mode != Requests {
		return nil, nil
	}
	if h != nil {
		route = h.Find(r)
	}
	if route == nil && l != nil && l.rest != nil {
		route = l.rest.Find(r)
	}
	return l, route
}

// Host returns what serves requests for a name, which is in lower case, without a port and without a
// dot at the end. The listener is that with the most specific hostname (Gateway API,
// Listener.hostname), of which the routes alone serve; where it has none for the name, it is that of
// the Ingresses, if they have a Host or serve the rest. Without a Host, listener is the one that has none,
// nil if there is no listener.
func (p *Port) Host(name string) (listener *Listener, h *Host) {
	if listener = p.listeners.find(name); listener != nil {
		if h = listener.Host(name); h != nil {
			return listener, h
		}
	}
	if p.ingresses != nil {
		if h = p.ingresses.Host(name); h != nil || listener == nil || p.ingresses.rest != nil {
			return p.ingresses, h
		}
	}
	return listener, nil
}

// Listener serves the requests, or connections, for its hostname.
type Listener struct {
	// Name says which listener of which object it is, for people.
	Name string
	// Hostname is in lower case; "*." and a name stands for all names below it, "" for all.
	Hostname string
	Mode     Mode
	hosts    names[*Host]
	rest     *Host
	// certificates are those of a listener of a Gateway, byHost those of Ingresses; nil for others.
	certificates []*tls.Certificate
	client       *tls.Certificate // for backends
	byHost       *names[*tls.Certificate]
	admits       *admission // nil for all clients
}

// Listeners yields the listeners of Gateways, in no order.
func (p *Port) Listeners() iter.Seq[*Listener] {
	return func(yield func(*Listener) bool) {
		p.listeners.all(func(_ string, l *Listener) bool { return yield(l) })
	}
}

// Ingresses returns the listener of Ingresses; nil if there is none.
func (p *Port) Ingresses() *Listener { return p.ingresses }

// NewListener returns a Listener without hosts.
func NewListener(name, hostname string) *Listener { return &Listener{Name: name, Hostname: hostname} }

// NewIngresses returns the Listener of Ingresses, without hosts: a wildcard stands for one label
// (IngressRule.host), where it stands for any number in Gateway API.
func NewIngresses() *Listener {
	return &Listener{
		Name: "Ingress", hosts: names[*Host]{oneLabel: true}, byHost: &names[*tls.Certificate]{oneLabel: true},
	}
}

// WithHosts returns a Listener with the name and hostname of l, and the hosts of l but for those that
// differ. A nil Host is removed.
func (l *Listener) WithHosts(differ map[string]*Host) *Listener {
	made := *l
	made.hosts = l.hosts.with(differ)
	return &made
}

// WithRest returns a Listener as l, whose requests that no route of the name's Host serves are those of
// another Host, nil for none (IngressSpec.defaultBackend).
func (l *Listener) WithRest(rest *Host) *Listener {
	made := *l
	made.rest = rest
	return &made
}

// Host returns the one with the most specific hostname that a name has: the name itself, else the
// longest wildcard, else that for all; nil if there is none.
func (l *Listener) Host(name string) *Host { return l.hosts.find(name) }

// Rest returns what serves the requests that no route of a name's Host does, see WithRest; nil if nothing is.
func (l *Listener) Rest() *Host { return l.rest }

// Hosts yields the hostnames of l's hosts, in no order.
func (l *Listener) Hosts() iter.Seq2[string, *Host] { return l.hosts.all }

// shards is into how many maps names are divided, so that a change of one copies few others.
const shards = 256

// names maps hostnames to values. The zero names has none.
type names[V comparable] struct {
	exact, below [shards]map[string]V // below has the names that follow "*."
	belowAny     bool                 // below is not empty
	any          V
	oneLabel     bool // that a wildcard stands for
}

// find returns the value of a name: its own, else that of the longest wildcard above it, else that
// for all names; the zero value if there is none.
func (n *names[V]) find(name string) (v V) {
	if v, ok := n.exact[shard(name)][name]; ok {
		return v
	}
	if n.belowAny {
		for rest := name; ; {
			_, above, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			if v, ok := n.below[shard(above)][above]; ok {
				return v
			}
			if n.oneLabel {
				break
			}
			rest = above
		}
	}
	return n.any
}

// slot returns the map and the key of a hostname that is not that for all names.
func (n *names[V]) slot(hostname string) (*map[string]V, string) {
	if above, wild := strings.CutPrefix(hostname, "*."); wild {
		return &n.below[shard(above)], above
	}
	return &n.exact[shard(hostname)], hostname
}

// set sets the value of a hostname; the zero value removes it.
func (n *names[V]) set(hostname string, v V) {
	var none V
	if hostname == "" {
		n.any = v
		return
	}
	m, key := n.slot(hostname)
	if v == none {
		delete(*m, key)
		n.belowAny = slices.ContainsFunc(n.below[:], func(m map[string]V) bool { return len(m) > 0 })
		return
	}
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = v
	n.belowAny = n.belowAny || key != hostname
}

// with returns a copy with other values for some hostnames.
func (n *names[V]) with(differ map[string]V) names[V] {
	made := *n
	copied := make(map[*map[string]V]struct{})
	for hostname, v := range differ {
		if hostname != "" {
			m, _ := made.slot(hostname)
			if _, ok := copied[m]; !ok {
				*m = maps.Clone(*m)
				copied[m] = struct{}{}
			}
		}
		made.set(hostname, v)
	}
	return made
}

// all yields each hostname and its value, in no order.
func (n *names[V]) all(yield func(string, V) bool) {
	var none V
	if n.any != none && !yield("", n.any) {
		return
	}
	for i := range shards {
		for name, v := range n.exact[i] {
			if !yield(name, v) {
				return
			}
		}
		for above, v := range n.below[i] {
			if !yield("*."+above, v) {
				return
			}
		}
	}
}

// shard returns the number of a name's map (FNV-1a).
func shard(name string) uint8 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * prime
	}
	return uint8(h ^ h>>8 ^ h>>16 ^ h>>24)
}
