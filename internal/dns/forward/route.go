package forward

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Policy is which upstream is asked first.
type SelectionPolicy string

// The policies. Upstreams that are down come last in each.
const (
	Fastest    SelectionPolicy = "fastest" // who answered fastest of late
	Sequential SelectionPolicy = "sequential"
	Random     SelectionPolicy = "random"
)

// Route says who is asked for the names below a suffix.
type Route struct {
	Suffix dnsname.Name
	// Upstreams are servers, and those of the file ResolvConf, which is read
	// again when it changes; servers that are Own are left out of that.
	Upstreams  []Upstream
	ResolvConf string
	IsOwn      func(netip.AddrPort) bool
	Policy     SelectionPolicy
	// Timeout is how long a question is asked at most.
	Timeout time.Duration
	// TrustDenials has a denial be of all names below it, whether or not the
	// upstream has validated it.
	TrustDenials bool
	// NoPrivate refuses answers with private addresses.
	NoPrivate bool
	// ClientSubnet has upstreams know what clients say of where they are (RFC
	// 7871).
	ClientSubnet bool
}

// route is a Route, and what is known of it.
type route struct {
	Route
	upstreams atomic.Pointer[[]*upstream]
	exchange  exchange // nil: over the network
	search    dnswire.OptionCode
}

func newRoute(r Route, exchange exchange, search dnswire.OptionCode) (*route, error) {
	made := &route{Route: r, exchange: exchange, search: search}
	servers := r.Upstreams
	if r.ResolvConf != "" {
		found, _, err := r.readResolvConf()
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", made, err)
		}
		servers = append(slices.Clone(servers), found...)
	}
	made.set(servers)
	return made, nil
}

// String is the route's suffix.
func (r *route) String() string { return r.Suffix.String() }

// set replaces the upstreams; what is known of those that stay is kept.
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

// explore is one of how many questions goes to another upstream than the fastest
// first, to see whether it still is.
const explore = 32

// allDown tells whether no upstream is held to answer.
func (r *route) allDown() bool {
	return !slices.ContainsFunc(*r.upstreams.Load(), func(u *upstream) bool { return !u.down.Load() })
}

// downFor is how long no upstream has been held to answer; 0 when one is.
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

// order is whom to ask, by the policy, and behind them those that are down: they
// may be up again. Those that lead back here are left out.
func (r *route) order() []*upstream {
	var order, down []*upstream
	for _, u := range *r.upstreams.Load() {
		switch {
		case u.loop.leadsBack():
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

// arrange puts upstreams in the order of the policy.
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

// pointsInside tells whether an answer has an address that is not public, or one
// that can't be read.
func pointsInside(reply *dnswire.Reply) bool {
	for rec := range reply.Records {
		for addr := range rec.Addresses {
			if isInside(addr) {
				return true
			}
		}
	}
	return false
}

// isInside tells whether an address, or the IPv4 address in it, is one that RFC
// 6890 lists as not public, as far as somebody may listen there. One that is not
// valid may be any.
func isInside(addr netip.Addr) bool {
	addr = addr.Unmap()
	switch b := addr.As16(); {
	case translated.Contains(addr):
		addr = netip.AddrFrom4([4]byte(b[12:]))
	case tunnelled.Contains(addr):
		addr = netip.AddrFrom4([4]byte(b[2:]))
	}
	return !addr.IsValid() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified() ||
		sharedRange.Contains(addr) || translatedInside.Contains(addr)
}

var (
	// sharedRange is that of carriers (RFC 6598), which clusters use as well.
	sharedRange = netip.MustParsePrefix("100.64.0.0/10")
	// translated has IPv4 addresses in its last octets (RFC 6052, section 2.1).
	translated = netip.MustParsePrefix("64:ff9b::/96")
	// translatedInside is for translators of a network's own (RFC 8215).
	translatedInside = netip.MustParsePrefix("64:ff9b:1::/48")
	// tunnelled has an IPv4 address behind its first two octets (RFC 3056,
	// section 2).
	tunnelled = netip.MustParsePrefix("2002::/16")
)
