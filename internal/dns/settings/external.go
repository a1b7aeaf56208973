package settings

import (
	"net/netip"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/kubezone"
)

// The objects that can have names for clients outside.
const (
	sourceService = "service"
	sourceIngress = "ingress"
	sourceGateway = "gateway"
)

func (e *External) compile(made *kubezone.External) error {
	for i, text := range e.Zones {
		name, err := dnsname.Parse(text)
		if err != nil {
			return key.ItemErrorf("dns.external.zones", i, "%w", err)
		}
		made.Zones = append(made.Zones, name)
	}
	for i, source := range e.Sources {
		switch source {
		case sourceService: // always
		case sourceIngress:
			made.Ingresses = true
		case sourceGateway:
			made.Gateways = true
		default:
			return key.ItemErrorf("dns.external.sources", i, "%q is not service, ingress or gateway", source)
		}
	}
	for i, text := range e.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return key.ItemErrorf("dns.external.addresses", i, "%q is not an address", text)
		}
		made.Addresses = append(made.Addresses, addr.Unmap())
	}
	return nil
}
