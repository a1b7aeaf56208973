package nft

import (
	"net/netip"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// TestNumbersOfManyEndpoints checks that there are numbers for the endpoints of a group of session
// affinity, however many a Service has, when all of them are replaced.
func TestNumbersOfManyEndpoints(t *testing.T) {
	t.Parallel()
	endpoints := func(network byte) (all []netip.AddrPort) {
		for i := range frontend.MaxSlots {
			all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, network, byte(i >> 8), byte(i)}), 80))
		}
		return all
	}
	at := func(last byte) frontend.Address {
		return frontend.Address{Addr: netip.AddrFrom4([4]byte{203, 0, 113, last}), Protocol: frontend.TCP, Port: 80}
	}
	r := newRecord(IPv4, false)
	for round := range byte(2) {
		// A Service that is internal to the node has other endpoints there than those of the whole cluster.
		affinity := &frontend.Affinity{Group: "shop/web:http/tcp", Timeout: time.Hour}
		all, local := endpoints(2*round), endpoints(2*round+1)
		done := make(chan edits, 1)
		go func() {
			done <- r.change(&frontend.Changes{Put: []*frontend.Frontend{
				{Address: at(1), Endpoints: local, Affinity: affinity},
				{Address: at(2), Policy: frontend.ExternalLocal, Endpoints: all, Local: local, Affinity: affinity},
			}})
		}()
		select {
		case d := <-done:
			if len(d.added) == 0 {
				t.Errorf("round %d: change adds nothing", round)
			}
		case <-time.After(time.Minute):
			t.Fatalf("round %d: change does not return", round)
		}
	}
}
