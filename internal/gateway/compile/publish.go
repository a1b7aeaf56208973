package compile

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// Publish is where the addresses come from that all Gateways and Ingresses share. The first that is set counts.
type Publish struct {
	// Service is the Service that leads to the gateway: its addresses and names are those of the load balancer, and
	// its externalIPs.
	Service cluster.Key
	// Addresses are IP addresses and hostnames.
	Addresses []string
	// Node is the Node of this process: its internal addresses.
	Node string
}

// Empty reports whether nothing is set.
func (p *Publish) Empty() bool { return p.Service.Name == "" && len(p.Addresses) == 0 && p.Node == "" }

// shared are the addresses that all Gateways and Ingresses share.
type shared struct {
	// published is nil if no source is set.
	published []cluster.GatewayAddress
	// requested are those that the Service requests of its load balancer, whether it has them or not.
	requested []netip.Addr
}

// equal reports whether s and o are the same.
func (s *shared) equal(o *shared) bool {
	return (s.published == nil) == (o.published == nil) && slices.Equal(s.published, o.published) &&
		slices.Equal(s.requested, o.requested)
}

// has reports whether an IP address is one of those that are shared.
func (s *shared) has(addr netip.Addr) bool {
	return addr.IsValid() && slices.ContainsFunc(s.published, func(a cluster.GatewayAddress) bool {
		return parseAddr(a.Value) == addr
	})
}

// MaxAddresses is the maximum number of addresses of a Gateway (Gateway API, GatewayStatus.addresses).
const MaxAddresses = 16

// find returns the addresses as the cluster has them.
func (p *Publish) find(v *cluster.View) shared {
	var texts []string
	var made shared
	switch {
	case p.Service.Name != "":
		texts, made.requested = ofService(v.Service(p.Service))
	case len(p.Addresses) > 0:
		texts = p.Addresses
	case p.Node != "":
		if n := v.Node(p.Node); n != nil {
			texts = textsOf(n.InternalIPs)
		}
	default:
		return shared{}
	}
	made.published = []cluster.GatewayAddress{}
	for _, text := range texts[:min(len(texts), MaxAddresses)] {
		made.published = append(made.published, gatewayAddress(text))
	}
	return made
}

// ofService returns the addresses and names of a Service, and the addresses that it requests. s may be nil.
func ofService(s *cluster.Service) (texts []string, requested []netip.Addr) {
	if s == nil || s.Spec == nil {
		return nil, nil
	}
	for _, i := range s.Spec.Ingress {
		texts = append(texts, i.Addr.String())
	}
	if s.External != nil {
		texts = append(texts, s.External.Targets...)
	}
	for _, text := range textsOf(s.Spec.ExternalIPs) {
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if asked := s.Spec.LoadBalancer; asked != nil {
		for text := range strings.SplitSeq(asked.Addresses+","+asked.IP, ",") {
			if addr := parseAddr(strings.TrimSpace(text)); addr.IsValid() {
				requested = append(requested, addr)
			}
		}
	}
	return texts, requested
}

func textsOf(addrs []netip.Addr) (texts []string) {
	for _, addr := range addrs {
		texts = append(texts, addr.String())
	}
	return texts
}

// gatewayAddress returns an address of its type.
func gatewayAddress(text string) cluster.GatewayAddress {
	if _, err := netip.ParseAddr(text); err != nil {
		return cluster.GatewayAddress{Type: cluster.AddressHostname, Value: text}
	}
	return cluster.GatewayAddress{Type: cluster.AddressIP, Value: text}
}
