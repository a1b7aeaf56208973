package access

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// failureBurst is how many wrong tokens of a source are answered at once, and failureTime the time
	// after which one more is.
	failureBurst = 5
	failureTime  = 10 * time.Second
	// mostSources is the maximum number of sources with wrong tokens that are remembered.
	mostSources = 1024
	// sourceBits is the length of the prefix that IPv6 addresses of one source have in common.
	sourceBits = 64
)

// failures limits wrong tokens per source. A source is in debt by failureTime for each.
type failures struct {
	mu   sync.Mutex
	free map[netip.Prefix]time.Time // when a source is out of debt
}

// sourceOf returns the source of a request; the zero Prefix if it is not known.
func sourceOf(r *http.Request) netip.Prefix {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr := client.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = sourceBits
	}
	return netip.PrefixFrom(addr, bits).Masked()
}

// wait returns for how long tokens of a source are not judged.
func (f *failures) wait(source netip.Prefix, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, known := f.free[source]
	if !known {
		return 0
	}
	return max(0, at.Sub(now)-(failureBurst-1)*failureTime)
}

// add counts a wrong token.
func (f *failures) add(source netip.Prefix, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.free == nil {
		f.free = make(map[netip.Prefix]time.Time)
	}
	if _, known := f.free[source]; !known && len(f.free) >= mostSources {
		f.forget(now)
	}
	at := f.free[source]
	if at.Before(now) {
		at = now
	}
	f.free[source] = at.Add(failureTime)
}

// forget removes the sources that are out of debt, or else the one that is soonest.
func (f *failures) forget(now time.Time) {
	var soonest netip.Prefix
	var first time.Time
	for source, at := range f.free {
		if !at.After(now) {
			delete(f.free, source)
		} else if first.IsZero() || at.Before(first) {
			soonest, first = source, at
		}
	}
	if len(f.free) >= mostSources {
		delete(f.free, soonest)
	}
}
