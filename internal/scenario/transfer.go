package scenario

import (
	"fmt"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
)

// instance is the instance name of the server in scenarios.
const instance = "i1"

// withHeld adds the SOA record of a client that has the zone with that serial to an IXFR
// query.
func withHeld(packet []byte, serial string) ([]byte, error) {
	var m dns.Msg
	if err := m.Unpack(packet); err != nil {
		return nil, err
	}
	name := m.Question[0].Name
	soa, err := dns.NewRR(fmt.Sprintf("%s 5 SOA %s.ns.dns.cluster.local. hostmaster.cluster.local. %s 0 0 0 0", name,
		instance, serial))
	if err != nil {
		return nil, err
	}
	m.Ns = append(m.Ns, soa)
	return m.Pack()
}

// transfers returns the sender of zone transfers, or nil if they are off.
func transfers(compiled *config.Compiled, db *zone.DB) (respond.Transfers, error) {
	if !compiled.DNS.Transfer.IsOn() {
		return nil, nil
	}
	db.SetHistoryLimits(compiled.DNS.Transfer.History)
	cfg := compiled.DNS.Transfer.Sender
	cfg.Data = db
	return transfer.New(cfg, nil)
}
