package kubezone

import (
	"net/netip"

	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/zone"
)

// SRV records say the same of each target (RFC 2782); the specification
// prescribes no values.
const (
	srvPriority = 0
	srvWeight   = 100
)

// PTR records of one address: the first of these that there is.
const (
	tierClusterIP = iota
	tierHeadless
	tierEndpoint
	tierPod
)

// records collects what one object compiles to. Names that would be longer
// than DNS allows are left out.
type records struct {
	zone.Builder
	ttl uint32
}

func (r *records) addr(name dnsname.Name, addr netip.Addr) {
	t := dnswire.TypeA
	if addr.Is6() {
		t = dnswire.TypeAAAA
	}
	r.Add(name, t, r.ttl, addr.AsSlice())
}

func (r *records) srv(name dnsname.Name, port uint16, target dnsname.Name) {
	r.Add(name, dnswire.TypeSRV, r.ttl, dnswire.AppendSRV(nil, srvPriority, srvWeight, port, target))
}

func (r *records) name(name dnsname.Name, t dnswire.Type, target dnsname.Name) {
	r.Add(name, t, r.ttl, target.AppendWire(nil))
}

func (r *records) ptr(addr netip.Addr, rank zone.Rank, target dnsname.Name) {
	r.AddRanked(dnsname.Reverse(addr), dnswire.TypePTR, r.ttl, rank, target.AppendWire(nil))
}

// child calls add with the name below parent, if it can be one.
func child(parent dnsname.Name, label string, add func(dnsname.Name)) {
	if name, err := parent.Child(label); err == nil {
		add(name)
	}
}

// below is the name under zone that the labels make, from the outermost in.
func below(zone dnsname.Name, labels ...string) (dnsname.Name, bool) {
	for _, l := range labels {
		var err error
		if zone, err = zone.Child(l); err != nil {
			return dnsname.Root, false
		}
	}
	return zone, true
}
