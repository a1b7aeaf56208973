package daemon

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/ops/metrics"
)

// newInstance is a label that no other history of serials has.
func newInstance() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}

// newTransfer makes what sends the zones of a, where anybody may have them.
func (d *Daemon) newTransfer(a, before *answers) (respond.Transfers, error) {
	settings := &a.settings.DNS.Transfer
	if !settings.IsOn() || d.agent != nil {
		return nil, nil
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
		return nil, err
	}
	a.db.SetHistoryLimits(settings.History) // of zones that the answers before may have: nothing fails from here on
	return a.transfer, nil
}

// dnsPort is that of endpoints that don't name another one.
const dnsPort = 53

// endpointsOf are the endpoints of a Service, ready or not: their port is the one
// named dns, or 53.
func (d *Daemon) endpointsOf(service cluster.Key) (all []netip.AddrPort) {
	d.store.View(func(v *cluster.View) {
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

// clientCAs are the authorities that sign clients' certificates; nil when clients
// are not asked for any.
func (d *Daemon) clientCAs() (*x509.CertPool, error) {
	file := d.cfg.DNS.TLS.ClientCA
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tls.clientCA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls.clientCA: %s: no certificate in PEM", file)
	}
	return pool, nil
}

func (a *answers) transferFigures() *metrics.TransferFigures {
	f := &metrics.TransferFigures{Counters: new(transfer.Counters)}
	if a.transfer != nil {
		f.Counters = a.transfer.Counters()
	}
	f.Changes, f.Memory = a.db.HistorySize()
	return f
}
