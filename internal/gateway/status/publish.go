package status

import (
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// Publish is where the addresses come from that Ingresses have, and Gateways without their own. The first that
// is set counts.
type Publish struct {
	// Service is a Service of type LoadBalancer: its addresses and names are those of the load balancer.
	Service cluster.Key
	// Addresses are IP addresses and hostnames.
	Addresses []string
	// Node is the Node of this process: its internal addresses.
	Node string
}

// Empty reports whether nothing is set.
func (p *Publish) Empty() bool { return p.Service.Name == "" && len(p.Addresses) == 0 && p.Node == "" }

// addresses returns the addresses; nil if nothing is set.
func (p *Publish) addresses(v *cluster.View) []cluster.GatewayAddress {
	made := []cluster.GatewayAddress{}
	switch {
	case p.Service.Name != "":
		s := v.Service(p.Service)
		if s == nil || s.Spec == nil {
			return made
		}
		for _, i := range s.Spec.Ingress {
			made = append(made, gatewayAddress(i.Addr.String()))
		}
		if s.External != nil {
			for _, name := range s.External.Targets {
				made = append(made, gatewayAddress(name))
			}
		}
	case len(p.Addresses) > 0:
		for _, text := range p.Addresses {
			made = append(made, gatewayAddress(text))
		}
	case p.Node != "":
		n := v.Node(p.Node)
		if n == nil {
			return made
		}
		for _, addr := range n.InternalIPs {
			made = append(made, gatewayAddress(addr.String()))
		}
	default:
		return nil
	}
	return made[:min(len(made), maxAddresses)]
}

// gatewayAddress returns an address of its type.
func gatewayAddress(text string) cluster.GatewayAddress {
	if _, err := netip.ParseAddr(text); err != nil {
		return cluster.GatewayAddress{Type: cluster.AddressHostname, Value: text}
	}
	return cluster.GatewayAddress{Type: cluster.AddressIP, Value: text}
}
