package pool

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// demand is what a Service asks for.
type demand struct {
	created int64
	// families are those of its addresses, in its order. required: it needs an address of each.
	families []cluster.AddressType
	required bool
	// requested are addresses of some of the families.
	requested []netip.Addr
	// pools are those that it may have addresses of; named: it asks for that one.
	pools []*space
	named bool
	// sharing is its key; empty if it shares no address.
	sharing string
	ports   []cluster.Port
	// local: only nodes with an endpoint take its packets. selector are its endpoints.
	local    bool
	selector map[string]string
	// problem is why it cannot have addresses; empty if it can.
	problem string
}

// Ours reports whether addresses are given to a Service, and are announced.
func (c *Config) Ours(s *cluster.Service) bool {
	if s.Spec == nil || s.Spec.Type != cluster.LoadBalancer {
		return false
	}
	if s.Spec.LoadBalancer == nil || s.Spec.LoadBalancer.Class == "" {
		return c.WithoutClass
	}
	return s.Spec.LoadBalancer.Class == c.Class
}

// demandOf returns what a Service asks for.
func (a *Assigner) demandOf(v *cluster.View, s *cluster.Service) *demand {
	d := &demand{
		created: s.Created, families: familiesOf(s), required: s.Spec.FamilyPolicy == cluster.RequireDualStack,
		ports: s.Ports, local: s.Spec.ExternalLocal, selector: s.Selector,
	}
	asked := s.Spec.LoadBalancer
	if asked == nil {
		asked = &cluster.LoadBalancerSpec{}
	}
	d.sharing, d.named = asked.SharingKey, asked.Pool != ""
	d.request(asked)
	var labels map[string]string
	if n := v.Namespace(s.Namespace); n != nil {
		labels = n.Labels
	}
	for _, p := range a.spaces {
		if p.admits(s, labels) && (!d.named || p.Name == asked.Pool) {
			d.pools = append(d.pools, p)
		}
	}
	if len(d.pools) == 0 && d.problem == "" {
		d.problem = "no pool is for this Service: see namespaces, namespaceSelector and serviceSelector of " +
			"controller.loadBalancer.pools"
		if d.named {
			d.problem = fmt.Sprintf("there is no pool %q, of the annotation %s, for this Service", asked.Pool,
				cluster.AnnotationPool)
		}
	}
	return d
}

// familiesOf returns the families of a Service's addresses: one with ipFamilyPolicy SingleStack.
func familiesOf(s *cluster.Service) (families []cluster.AddressType) {
	families = s.Spec.Families
	if len(families) == 0 {
		for _, addr := range s.ClusterIPs {
			families = append(families, cluster.FamilyOf(addr))
		}
	}
	switch {
	case len(families) == 0:
		return []cluster.AddressType{cluster.IPv4}
	case s.Spec.FamilyPolicy == cluster.SingleStack:
		return families[:1]
	}
	return families
}

// request sets the addresses that are requested.
func (d *demand) request(asked *cluster.LoadBalancerSpec) {
	requested, err := ParseRequest(asked)
	if err != nil {
		d.problem = err.Error()
	}
	for _, addr := range requested {
		if !slices.Contains(d.families, cluster.FamilyOf(addr)) {
			d.problem = fmt.Sprintf("the requested address %s is of a family that is not in spec.ipFamilies", addr)
			continue
		}
		d.requested = append(d.requested, addr)
	}
}

// ParseRequest returns the addresses that a Service requests, at most one of each family. The annotation
// (cluster.AnnotationLoadBalancerIPs) precedes spec.loadBalancerIP, which is deprecated.
func ParseRequest(asked *cluster.LoadBalancerSpec) (requested []netip.Addr, err error) {
	texts := strings.Split(asked.Addresses, ",")
	if asked.Addresses == "" {
		texts = []string{asked.IP}
	}
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		addr := parseAddr(text)
		switch {
		case !addr.IsValid():
			return nil, fmt.Errorf("%q, which is requested, is not an IP address", text)
		case slices.ContainsFunc(requested, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }):
			return nil, fmt.Errorf("two addresses of one family are requested: %s", asked.Addresses)
		}
		requested = append(requested, addr)
	}
	return requested, nil
}

// requestOf returns the address of a family that is requested; the zero Addr if there is none.
func (d *demand) requestOf(f cluster.AddressType) netip.Addr {
	for _, addr := range d.requested {
		if cluster.FamilyOf(addr) == f {
			return addr
		}
	}
	return netip.Addr{}
}

// admits reports whether a Service in a Namespace with labels may have addresses of the pool.
func (p *Pool) admits(s *cluster.Service, labels map[string]string) bool {
	return (len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, s.Namespace)) &&
		(p.NamespaceSelector == nil || p.NamespaceSelector.Selects(labels)) &&
		(p.ServiceSelector == nil || p.ServiceSelector.Selects(s.Spec.Labels))
}

// poolOf returns the pool of those that d may have addresses of which an address is in; nil if it is in none.
func (d *demand) poolOf(addr netip.Addr) *space {
	for _, p := range d.pools {
		if p.contains(addr) {
			return p
		}
	}
	return nil
}

// allows reports whether a Service may have an address, if nobody else has it.
func (d *demand) allows(addr netip.Addr) bool {
	if d.problem != "" || !slices.Contains(d.families, cluster.FamilyOf(addr)) {
		return false
	}
	p := d.poolOf(addr)
	if requested := d.requestOf(cluster.FamilyOf(addr)); requested.IsValid() {
		return p != nil && requested == addr
	}
	return p != nil && !inAny(p.Reserved, addr)
}

// shares reports whether two Services may have one address: they have the same key and different ports, and both
// take packets on all nodes or have the same endpoints.
func (d *demand) shares(of cluster.Key, o *demand, other cluster.Key) bool {
	if d.sharing == "" || d.sharing != o.sharing {
		return false
	}
	for _, p := range d.ports {
		for _, q := range o.ports {
			if p.Number == q.Number && p.Protocol == q.Protocol {
				return false
			}
		}
	}
	if !d.local && !o.local {
		return true
	}
	return of.Namespace == other.Namespace && len(d.selector) > 0 && maps.Equal(d.selector, o.selector)
}
