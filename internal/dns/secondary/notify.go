package secondary

import (
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// Key gives the key that signs transfers, if it has that name.
func (r *Secondary) Key(name dnsname.Name) *dnswire.TSIGKey {
	if key := r.key(); key != nil && key.Name == name {
		return key
	}
	return nil
}

// Notify takes in a NOTIFY, see respond.Notified: of a server, or of who has the
// key. Those of one zone that come while another waits are one.
func (r *Secondary) Notify(apex []byte, from netip.Addr, signed respond.Signed) (taken bool) {
	i := slices.IndexFunc(r.zones, func(z *followed) bool { return z.name.WireLabels() == string(apex) })
	from = from.Unmap().WithZone("")
	r.mu.Lock()
	defer r.mu.Unlock()
	server := r.isServer(from)
	if i < 0 || !bool(signed) && !server {
		r.counts.Refused++
		return false
	}
	r.counts.Notified++
	// Other servers have other serials, and tell of the same changes.
	another := server && r.server != nil && r.server.Addr.Addr() != from
	if z := r.zones[i]; !another && z.notified.IsZero() {
		z.notified = time.Now()
		select {
		case r.wake <- struct{}{}:
		default: // it will look at all zones
		}
	}
	return true
}
