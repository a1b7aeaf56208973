package respond

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// View is what the clients of some networks see. Each view has a Responder of its
// own, so that choosing one is all that a query costs more.
type View struct {
	Clients []netip.Prefix
	Zones   []dnsname.Name // all when empty
	// Forward has upstreams answer names outside the zones.
	Forward bool
}

// Contains reports whether the view is that of a client.
func (v *View) Contains(client netip.Addr) bool {
	return slices.ContainsFunc(v.Clients, func(p netip.Prefix) bool { return p.Contains(client) })
}

// Config returns the configuration of the view's Responder; whole is that of clients
// without a view.
func (v *View) Config(whole Config) Config {
	if len(v.Zones) > 0 {
		whole.Data = &visible{whole.Data, v.Zones}
		if whole.Transfers != nil {
			whole.Transfers = &visibleTransfers{whole.Transfers, v.Zones}
		}
	}
	if !v.Forward {
		whole.Upstreams = nil
	}
	return whole
}

// visibleTransfers are Transfers of some zones.
type visibleTransfers struct {
	Transfers
	zones []dnsname.Name
}

// Begin refuses the transfer of other zones.
func (t *visibleTransfers) Begin(q *TransferQuery) (Messages, *Refusal) {
	if !slices.Contains(t.zones, q.Zone) {
		return nil, &Refusal{dnswire.Refused, &noTransfer}
	}
	return t.Transfers.Begin(q)
}

// visible is the part of Data in some zones.
type visible struct {
	all   Data
	zones []dnsname.Name
}

func (d *visible) Lookup(s *zone.Scratch, qname []byte, qtype dnswire.Type) zone.Answer {
	a := d.all.Lookup(s, qname, qtype)
	if a.SOA == nil || slices.Contains(d.zones, a.SOA.Zone) {
		return a
	}
	return zone.Answer{Outcome: zone.OutOfZone}
}

func (d *visible) Addresses(s *zone.Scratch, name []byte) (a, aaaa dnswire.RRset) {
	if d.Lookup(s, name, dnswire.TypeA).Outcome == zone.OutOfZone {
		return a, aaaa
	}
	return d.all.Addresses(s, name)
}
