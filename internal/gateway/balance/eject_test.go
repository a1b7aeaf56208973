package balance

import (
	"net/netip"
	"strings"
	"testing"
)

// TestEjectMonotonic: the end of an ejection is on the monotonic clock, which cannot be set.
func TestEjectMonotonic(t *testing.T) {
	t.Parallel()
	p := NewPool()
	p.Update([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("192.0.2.2:80")})
	e := p.Pick()
	for range failuresToEject {
		p.Report(e, false)
	}
	until := e.until.Load()
	if until == nil || !strings.Contains(until.String(), "m=") { // as its documentation says
		t.Errorf("ejected until %v, want a time with a monotonic reading", until)
	}
}
