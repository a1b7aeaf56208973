package forward

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/support/deadline"
)

// SelectionPolicy selects the upstream that is queried first.
type SelectionPolicy string

// Selection policies. Upstreams that are down always come last.
const (
	Fastest    SelectionPolicy = "fastest" // by smoothed round-trip time
	Sequential SelectionPolicy = "sequential"
	Random     SelectionPolicy = "random"
)

// Route configures forwarding for the names below a suffix.
type Route struct {
	Suffix dnsname.Name
	// Upstreams are the configured servers. The servers in the file ResolvConf
	// are added to them; the file is reread when it changes, and servers for
	// which IsOwn returns true are left out.
	Upstreams  []Upstream
	ResolvConf string
	IsOwn      func(netip.AddrPort) bool
	Policy     SelectionPolicy
	// Timeout bounds the time to resolve a question.
	Timeout time.Duration
	// TrustDenials makes a denial of a name apply to all names below it (RFC
	// 8020), even if the upstream has not validated it.
	TrustDenials bool
	// NoPrivate rejects answers with private addresses.
	NoPrivate bool
	// ClientSubnet forwards the client subnet option (RFC 7871).
	ClientSubnet bool
}

// route is a Route and its state.
type route struct {
	Route
	upstreams atomic.Pointer[[]*upstream]
	reading   deadline.Call[nameservers] // of ResolvConf
	exchange  exchange                   // nil means over the network
	search    dnswire.OptionCode
}

func newRoute(r Route, exchange exchange, search dnswire.OptionCode) (*route, error) {
	made := &route{Route: r, exchange: exchange, search: search}
	servers := r.Upstreams
	if r.ResolvConf != "" {
		found, err := made.readResolvConf(context.Background(), deadline.File)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", made, err)
		}
		servers = append(slices.Clone(servers), found.servers...)
	}
	made.set(servers)
	return made, nil
}

// String returns the route's suffix.
func (r *route) String() string { return r.Suffix.String() }

// set replaces the upstreams. Those that stay keep their state.
func (r *route) set(servers []Upstream) {
	var before, now []*upstream
	if p := r.upstreams.Load(); p != nil {
		before = *p
	}
	for _, s := range servers {
		i := slices.IndexFunc(before, func(u *upstream) bool { return u.Upstream == s })
		if i >= 0 {
			now = append(now, before[i])
		} else {
			now = append(now, newUpstream(s, r.Suffix, r.exchange, r.search))
		}
	}
	r.upstreams.Store(&now)
	for _, u := range before {
		if !slices.Contains(now, u) {
			u.close()
		}
	}
}

// explore is the inverse of the share of questions that go to a slower upstream
// first, to measure it again.
const explore = 32

// allDown reports whether all upstreams are down.
func (r *route) allDown() bool {
	return !slices.ContainsFunc(*r.upstreams.Load(), func(u *upstream) bool { return !u.down.Load() })
}

// downFor returns how long all upstreams have been down; 0 if one is up.
func (r *route) downFor(now time.Time) time.Duration {
	if !r.allDown() {
		return 0
	}
	var last int64
	for _, u := range *r.upstreams.Load() {
		last = max(last, u.downSince.Load())
	}
	return now.Sub(time.Unix(0, last))
}

// order returns the upstreams in the order of the policy, followed by those
// that are down, which may be up again. Upstreams that loop are left out.
func (r *route) order() []*upstream {
	var order, down []*upstream
	for _, u := range *r.upstreams.Load() {
		switch {
		case u.loop.loops():
		case u.down.Load():
			down = append(down, u)
		default:
			order = append(order, u)
		}
	}
	if len(order) == 0 {
		order, down = down, nil
	}
	r.arrange(order)
	return append(order, down...)
}

// arrange sorts upstreams by the policy.
func (r *route) arrange(order []*upstream) {
	switch r.Policy {
	case Random:
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	case Fastest:
		rtts := make(map[*upstream]time.Duration, len(order))
		for _, u := range order {
			rtts[u] = u.smoothedRTT()
		}
		slices.SortStableFunc(order, func(a, b *upstream) int { return cmp.Compare(rtts[a], rtts[b]) })
		if n := len(order); n > 1 && rand.N(explore) == 0 {
			i := 1 + rand.N(n-1)
			order[0], order[i] = order[i], order[0]
		}
	case Sequential:
	}
}

// hasPrivateAddress reports whether an answer contains an address that is not
// public or that cannot be parsed.
func hasPrivateAddress(reply *dnswire.Reply) bool {
	for rec := range reply.Records {
		for addr := range rec.Addresses {
			if isPrivate(addr) {
				return true
			}
		}
	}
	return false
}

// isPrivate reports whether addr, or the IPv4 address embedded in it, may be
// that of a host but is not globally reachable by the registries of RFC 6890.
// An invalid address may be any and counts as private.
func isPrivate(addr netip.Addr) bool {
	addr = addr.Unmap()
	switch b := addr.As16(); {
	case translated.Contains(addr):
		addr = netip.AddrFrom4([4]byte(b[12:]))
	case tunneled.Contains(addr):
		addr = netip.AddrFrom4([4]byte(b[2:]))
	}
	return !addr.IsValid() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified() ||
		sharedRange.Contains(addr) || translatedPrivate.Contains(addr)
}

var (
	// sharedRange is for carrier-grade NAT (RFC 6598); clusters use it as well.
	sharedRange = netip.MustParsePrefix("100.64.0.0/10")
	// translated has IPv4 addresses in its last four octets (RFC 6052, section
	// 2.1).
	translated = netip.MustParsePrefix("64:ff9b::/96")
	// translatedPrivate is for local translation (RFC 8215).
	translatedPrivate = netip.MustParsePrefix("64:ff9b:1::/48")
	// tunneled has IPv4 addresses behind its first two octets (RFC 3056,
	// section 2).
	tunneled = netip.MustParsePrefix("2002::/16")
)
