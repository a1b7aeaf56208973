package secondary

import (
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// Key returns the key that signs transfers if it has that name, otherwise nil.
func (r *Secondary) Key(name dnsname.Name) *dnswire.TSIGKey {
	if key := r.key(); key != nil && key.Name == name {
		return key
	}
	return nil
}

// Notify handles a NOTIFY (see respond.Notified) and reports whether it came
// from a known primary or was signed with the key. NOTIFYs for a zone are
// merged while one waits.
func (r *Secondary) Notify(apex []byte, from netip.Addr, signed respond.Signed) (taken bool) {
	i := slices.IndexFunc(r.zones, func(z *followedZone) bool { return z.name.WireLabels() == string(apex) })
	from = from.Unmap().WithZone("")
	r.mu.Lock()
	defer r.mu.Unlock()
	server := r.isPrimary(from)
	if i < 0 || !bool(signed) && !server {
		r.counts.Refused++
		return false
	}
	r.counts.Notified++
	// Other primaries have other serials, but announce the same changes.
	another := server && r.server != nil && r.server.Addr.Addr() != from
	if z := r.zones[i]; !another && z.notified.IsZero() {
		z.notified = time.Now()
		select {
		case r.wake <- struct{}{}:
		default: // the pending wake-up covers all zones
		}
	}
	return true
}
