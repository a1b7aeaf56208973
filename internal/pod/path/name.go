package path

import (
	"fmt"
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/explain"
)

// name adds the layer of the lookup, if there is one.
func (x *explainer) name() {
	d := x.DNS
	switch {
	case d == nil:
	case d.Found():
		x.add(Step{Layer: Name, State: OK, Says: d.Summary(), Diagnoses: d.Diagnoses})
	case d.NotKnown():
		x.add(Step{Layer: Name, State: NotKnown, Says: d.Summary(), Diagnoses: d.Diagnoses})
	default:
		x.add(Step{Layer: Name, State: Broken, Says: d.Summary(), Diagnoses: d.Diagnoses})
	}
}

// resolved reports whether the addresses of the host are known: it is one, or it was looked up.
func (x *explainer) resolved() bool { return x.DNS == nil || x.DNS.Found() }

// meant returns the Service that a name is taken for which does not resolve. It returns nil if there is none.
func (x *explainer) meant() *cluster.Service {
	if x.DNS == nil {
		return nil
	}
	if s := x.View.Service(x.DNS.Meant); s != nil {
		return s
	}
	for i := range x.DNS.Candidates { // of queries that no server gets
		key, ok := explain.ServiceOf(x.DNS.Candidates[i].Name, x.Linter.Domains)
		if s := x.View.Service(key); ok && s != nil {
			return s
		}
	}
	return nil
}

// addressesOf returns the addresses of a Service; of a headless one, those of its endpoints that are ready.
func (x *explainer) addressesOf(s *cluster.Service) (addrs []netip.Addr) {
	if !s.Headless {
		return s.ClusterIPs
	}
	for _, slice := range x.View.SlicesOf(s.Key) {
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.Ready || s.PublishNotReady {
				addrs = append(addrs, e.Addr)
			}
		}
	}
	return addrs
}

// assumed returns the addresses that the client is taken to connect to, of a name that does not resolve or whose
// addresses are not known: those of the gateway that has the host, or of the Service that is meant. why says which.
func (x *explainer) assumed() (addrs []netip.Addr, why string) {
	if s := x.meant(); s != nil {
		return x.addressesOf(s), fmt.Sprintf("the name is taken for that of Service %s", s.Key)
	}
	if x.Message != nil {
		if addrs, owner := x.Gateway.AddressesFor(x.Message); len(addrs) > 0 {
			return addrs, "the name is taken for one of " + owner
		}
	}
	return nil, ""
}
