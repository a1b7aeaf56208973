package proxy

import (
	"fmt"
	"net/netip"

	"portolan.dev/portolan/bench/sender"
)

const (
	// A flow to the endpoint has another source than those through the Service, so that
	// connection tracking does not need to give it another port.
	directSources = 2 * sender.PortCount
	beyond        = 2 * directSources // the sources of first packets
	maxBatches    = 2 * sender.PortCount / sender.Flows
)

// measurePackets measures the processor time of packets through all nodes, batch by batch
// in turn.
func (b *bench) measurePackets(running [contenders]*node, results [contenders]*result) error {
	for batch := range b.batches {
		for i := range contenders {
			place := (batch + i) % contenders
			if err := running[place].measureBatch(batch, results[place]); err != nil {
				return fmt.Errorf("packets through %s: %w", running[place].name, err)
			}
		}
	}
	return nil
}

// measureBatch sends packets to the Service and, for comparison, to its endpoint.
func (n *node) measureBatch(batch int, r *result) error {
	t := packets()
	for _, to := range []struct {
		netip.AddrPort
		sources            int
		first, established *[]float64
	}{
		{t.addrPort(), 0, &r.first, &r.established},
		{netip.AddrPortFrom(t.endpoints[0], datagrams), directSources, &r.directFirst, &r.directEstablished},
	} {
		err := n.world.Client.Do(func() error {
			first, err := sender.First(to.AddrPort, to.sources+batch*sender.Flows)
			if err != nil {
				return err
			}
			established, err := sender.Established(to.AddrPort, beyond+to.sources+batch)
			*to.first, *to.established = append(*to.first, first), append(*to.established, established)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
