package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// assignment is where a Gateway is served.
type assignment struct {
	// addrs are its addresses; the zero Addr is those that the process shares. Without any it is not served.
	addrs []netip.Addr
	// named are the addresses that it names of those that the process shares; nil if it has all of them, or none.
	named []netip.Addr
	// problem is the condition Programmed, if it lacks an address; nil if it has all.
	problem *cluster.Condition
}

// pool assigns addresses to Gateways, each to one.
type pool struct {
	*Config
	shared *shared
	owners map[netip.Addr]cluster.Key
}

// assign assigns addresses to Gateways, which come in the order of their age. It depends on nothing but them,
// the Config and the addresses that are shared: what was assigned before is in their status.
//
// A Gateway gets the addresses that it names, if they are in the pool and no older one has them, or if all
// share them. Where it wants any address it gets one that its status has, on the same terms, else one that
// nobody has.
func (c *Config) assign(gateways []*cluster.Frontend, s *shared) map[cluster.Key]*assignment {
	p := pool{c, s, make(map[netip.Addr]cluster.Key)}
	all := make(map[cluster.Key]*assignment)
	missing := make(map[cluster.Key]int) // addresses that are still to be assigned
	for _, gw := range gateways {
		a := new(assignment)
		all[gw.Key] = a
		if c.acceptance(gw.Gateway).Status != "True" {
			continue
		}
		want := c.request(gw.Gateway)
		for _, text := range want.named {
			p.claim(gw.Key, a, text)
		}
		if want.shared {
			a.share()
			a.named = nil // all of them
		}
		for _, was := range gw.Gateway.Status.Addresses {
			addr := parseAddr(was.Value)
			if want.others > 0 && !p.owned(addr) && slices.Contains(c.Pool, addr) {
				p.take(gw.Key, a, addr)
				want.others--
			}
		}
		missing[gw.Key] = want.others
	}
	free := c.Pool
	for _, gw := range gateways {
		for range missing[gw.Key] {
			for len(free) > 0 && p.owned(free[0]) {
				free = free[1:]
			}
			if len(free) == 0 {
				all[gw.Key].lack("AddressNotAssigned", "all %d addresses of the pool are assigned to Gateways", len(c.Pool))
				break
			}
			p.take(gw.Key, all[gw.Key], free[0])
		}
	}
	return all
}

// request is what a Gateway asks for.
type request struct {
	named  []string // addresses
	others int      // how many other addresses of the pool
	shared bool     // the addresses of the process
}

// request returns what a Gateway asks for. Without a pool any address is one that the process shares.
func (c *Config) request(gw *cluster.GatewaySpec) (r request) {
	for _, a := range gw.Addresses {
		if a.Value != "" {
			r.named = append(r.named, a.Value)
		} else {
			r.others++
		}
	}
	if len(gw.Addresses) == 0 {
		r.others = 1
		r.shared = !c.PoolByDefault
	}
	if r.shared = r.shared || r.others > 0 && len(c.Pool) == 0; r.shared {
		r.others = 0
	}
	return r
}

// parseAddr returns an address in the form that Pool has; the zero Addr if text is none.
func parseAddr(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// claim assigns an address that a Gateway names.
func (p *pool) claim(key cluster.Key, a *assignment, text string) {
	addr := parseAddr(text)
	owner, taken := p.owners[addr]
	switch inPool := slices.Contains(p.Pool, addr); {
	case !inPool && p.shared.has(addr):
		if a.share(); !slices.Contains(a.named, addr) {
			a.named = append(a.named, addr)
		}
	case !inPool && slices.Contains(p.shared.requested, addr):
		a.lack("AddressNotAssigned", "Service %s requests the address %s and does not have it: see its Events",
			p.Publish.Service, text)
	case !inPool:
		a.lack("AddressNotUsable", "the address %s is not %s", text, p.places())
	case taken && owner != key:
		a.lack("AddressNotUsable", "the address %s is assigned to Gateway %s, which is older", text, owner)
	case !taken:
		p.take(key, a, addr)
	}
}

// places says where addresses are that Gateways can name, and how one gets there.
func (c *Config) places() string {
	var places []string
	hint := ""
	if len(c.Pool) > 0 || c.Publish.Empty() {
		places = append(places, "in gateway.pool")
	}
	switch {
	case c.Publish.Service.Name != "":
		places = append(places, "one of Service "+c.Publish.Service.String())
		hint = "; the Service can request it by its annotation " + cluster.AnnotationLoadBalancerIPs
	case c.Publish.Node != "" && len(c.Publish.Addresses) == 0:
		places = append(places, "one of Node "+c.Publish.Node)
	default:
		places = append(places, "in gateway.publish.addresses")
	}
	return strings.Join(places, " and not ") + hint
}

// share adds the addresses that the process shares.
func (a *assignment) share() {
	if !slices.Contains(a.addrs, netip.Addr{}) {
		a.addrs = append(a.addrs, netip.Addr{})
	}
}

func (p *pool) take(key cluster.Key, a *assignment, addr netip.Addr) {
	p.owners[addr] = key
	a.addrs = append(a.addrs, addr)
}

func (p *pool) owned(addr netip.Addr) bool {
	_, taken := p.owners[addr]
	return taken
}

// lack keeps the first reason why an address is missing.
func (a *assignment) lack(reason, format string, args ...any) {
	if a.problem == nil {
		a.problem = new(no(programmed, reason, fmt.Sprintf(format, args...)))
	}
}

// acceptance returns the condition Accepted of a Gateway, but for its listeners.
func (c *Config) acceptance(gw *cluster.GatewaySpec) cluster.Condition {
	if gw.Parameters != nil {
		return no(accepted, "InvalidParameters", "spec.infrastructure.parametersRef is not supported")
	}
	for _, r := range gw.Addresses {
		if r.Type != cluster.AddressIP {
			return no(accepted, "UnsupportedAddress", fmt.Sprintf("addresses of type %s are not supported", r.Type))
		}
	}
	return yes(accepted, "Accepted", "")
}
