// Package filter is what a server does with a query before it looks for an
// answer: who may ask, and how often; which names are others, which are blocked,
// and which have addresses that somebody wrote down.
//
// Its files are of the form of hosts(5), and lists of one name a line. They are
// read again when they change, and when they come to be; what can't be read leaves
// what was there.
package filter

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Config is what Rules are made from. The zero value lets everything pass.
type Config struct {
	// Access are looked at in their order; the first that is of a query decides.
	// One that none is of may be asked.
	Access   []AccessRule
	Rewrites []Rewrite
	Block    Blocklist
	Hosts    Hosts
}

// Access says what becomes of queries of some clients for some names.
type AccessRule struct {
	Action  Action
	Clients []netip.Prefix // all when empty
	Names   []dnsname.Name // and all below; all when empty
}

// Action is what becomes of a query. The zero value is harmless.
type Action uint8

// The actions.
const (
	Refuse Action = iota
	Allow
	Drop
)

// Rewrite has one name answered as another. What is answered belongs to the name
// that was asked for.
type Rewrite struct {
	From, To dnsname.Name
	// Exact is for the name alone, not for those below.
	Exact bool
}

// Block is names, with all below, that are not to be had.
type Blocklist struct {
	Names []dnsname.Name
	Files []string
	// Zero has them answered with the address 0.0.0.0 or ::, and not denied.
	Zero bool
	// TTL is that of the address, in seconds.
	TTL uint32
}

// Hosts are names and their addresses.
type Hosts struct {
	Lines []string // as in hosts(5)
	Files []string
	TTL   uint32 // in seconds
}

// Rules apply to queries. They may be used by several goroutines at once.
type Filter struct {
	cfg     Config
	exact   map[string]string // from name to name, in wire form
	suffix  map[string]string
	lines   *list            // of Config.Hosts
	blocked [2]dnswire.RRset // the addresses of blocked names, A and AAAA
	tables  atomic.Pointer[tables]
}

// tables are what is read from files, and replaced when those change.
type tables struct {
	blocked map[string]struct{}
	hosts   map[string]host
	lists   map[source]*list // what they are made from; none of a file that was never there
}

// host is what a name of hosts(5) has.
type host struct{ a, aaaa, ptr dnswire.RRset }

// Names are in lower-case wire form without the root's closing zero octet, here
// and in all that follows.

// Access decides about a query.
func (r *Filter) Access(client netip.Addr, name []byte) Action {
	for i := range r.cfg.Access {
		if a := &r.cfg.Access[i]; a.isOf(client, name) {
			return a.Action
		}
	}
	return Allow
}

func (a *AccessRule) isOf(client netip.Addr, name []byte) bool {
	isClient := func(p netip.Prefix) bool { return p.Contains(client) }
	holds := func(n dnsname.Name) bool { return n.Contains(name) }
	return (len(a.Clients) == 0 || slices.ContainsFunc(a.Clients, isClient)) && (len(a.Names) == 0 || slices.ContainsFunc(a.Names, holds))
}

// Rewrite gives the name that name is answered as: itself, unless a rule says
// otherwise, else one in room, which must hold dnsname.MaxWire octets. The rule
// of the longest name counts; where the result were too long none does.
func (r *Filter) Rewrite(name, room []byte) (renamed []byte, is bool) {
	if len(r.exact)+len(r.suffix) == 0 {
		return name, false
	}
	if to, ok := r.exact[string(name)]; ok {
		return append(room[:0], to...), true
	}
	for off := 0; ; off += 1 + int(name[off]) {
		if to, ok := r.suffix[string(name[off:])]; ok {
			if off+len(to) >= dnsname.MaxWire {
				return name, false
			}
			return append(append(room[:0], name[:off]...), to...), true
		}
		if off == len(name) {
			return name, false
		}
	}
}

// Blocked tells whether name is blocked, and gives what is answered in place of
// a denial; an RRset without records is NODATA.
func (r *Filter) Blocked(name []byte, t dnswire.Type) (set dnswire.RRset, denied, blocked bool) {
	names := r.tables.Load().blocked
	if len(names) == 0 {
		return set, false, false
	}
	for off := 0; ; off += 1 + int(name[off]) {
		if _, ok := names[string(name[off:])]; ok {
			return r.zero(t), !r.cfg.Block.Zero, true
		}
		if off == len(name) {
			return set, false, false
		}
	}
}

func (r *Filter) zero(t dnswire.Type) (set dnswire.RRset) {
	for _, set := range r.blocked {
		if set.Type == t {
			return set
		}
	}
	return set
}

// Host finds the RRset of type t that somebody wrote down for name, one without
// records where there are only others. exists tells whether there are any.
func (r *Filter) Host(name []byte, t dnswire.Type) (set dnswire.RRset, exists bool) {
	hosts := r.tables.Load().hosts
	if len(hosts) == 0 {
		return set, false
	}
	h, ok := hosts[string(name)]
	if !ok {
		return set, false
	}
	for _, set := range []dnswire.RRset{h.a, h.aaaa, h.ptr} {
		if set.Count > 0 && (set.Type == t || t == dnswire.TypeANY) {
			return set, true
		}
	}
	return set, true
}
