package cluster

import "net/netip"

// ServiceImport is a ServiceImport of the Multicluster Services API (KEP-1645): a
// Service of the clusterset, as this cluster sees it.
type ServiceImport struct {
	Key
	// Headless: its type is Headless, so that its addresses are those of endpoints.
	Headless bool
	// IPs are the clusterset IPs; none when headless, or when none was assigned yet.
	IPs   []netip.Addr
	Ports []Port
}

// Ref returns kind and key.
func (s *ServiceImport) Ref() Ref { return Ref{KindServiceImport, s.Key} }
