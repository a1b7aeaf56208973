package app

import (
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/transfer"
)

// transferFor sets the sender of zone transfers, if the configuration allows transfers.
func (d *DNS) transferFor(a, before *answers) error {
	settings := &a.settings.DNS.Transfer
	if !settings.IsOn() {
		return nil
	}
	var last *transfer.Sender
	if before != nil {
		last = before.transfer
	}
	cfg := settings.Sender
	cfg.Data = a.db
	cfg.Secondaries = func() []netip.AddrPort {
		return append(d.endpointsOf(settings.NotifyService), settings.Notify...)
	}
	var err error
	if a.transfer, err = transfer.New(cfg, last); err != nil {
		return err
	}
	a.db.SetHistoryLimits(settings.History)
	a.wiring.Transfers = a.transfer
	return nil
}

// dnsPort is the port of endpoints without a port named dns.
const dnsPort = 53

// endpointsOf returns the endpoints of a Service, ready or not, with the port named
// dns, or 53.
func (d *DNS) endpointsOf(service cluster.Key) (all []netip.AddrPort) {
	d.cfg.Store.View(func(v *cluster.View) {
		for _, slice := range v.SlicesOf(service) {
			port := uint16(dnsPort)
			for _, p := range slice.Ports {
				if p.Name == "dns" && p.Number != 0 {
					port = p.Number
				}
			}
			for i := range slice.Endpoints {
				all = append(all, netip.AddrPortFrom(slice.Endpoints[i].Addr, port))
			}
		}
	})
	return all
}
