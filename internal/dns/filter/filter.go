// Package filter decides about queries before they are resolved: which clients
// may query which names, how many responses a client gets per second, which
// names are rewritten or blocked, and which names have addresses from hosts
// files.
//
//	query -> Access -> Rewrite -> Blocked -> Host -> (resolve) -> RateLimiter -> response
//	                                                   └-> Suppresses -> (forward)
//
// Host files have the format of hosts(5), see the Linux man-pages. Block lists
// have one name per line, or the format of hosts(5). Files are read again when
// they change or appear; a file that cannot be read keeps its previous content.
// Rate limiting follows the response rate limiting of BIND, by the generic cell
// rate algorithm (ITU-T I.371).
package filter

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Suppression has names outside the zones served here answered as if they had no
// records of some types. A query must match Types, Clients and Names.
type Suppression struct {
	Types   []dnswire.Type
	Clients []netip.Prefix // all clients if empty
	Names   []dnsname.Name // includes all names below; all names if empty
}

// Config configures a Filter. The zero value lets every query pass.
type Config struct {
	// Access holds the access rules. The first rule that matches a query
	// decides; a query that no rule matches is allowed.
	Access   []AccessRule
	Rewrites []Rewrite
	Suppress []Suppression
	// Served are zones that the servers have to which this one forwards: Suppress does
	// not apply in them.
	Served []dnsname.Name
	Block  Blocklist
	Hosts  Hosts
}

// AccessRule sets the action for queries from some clients for some names. A
// query must match Clients and Names.
type AccessRule struct {
	Action  Action
	Clients []netip.Prefix // all clients if empty
	Names   []dnsname.Name // includes all names below; all names if empty
}

// Action is what the server does with a query. The zero value refuses.
type Action uint8

// Actions: Refuse answers REFUSED, Drop sends no response.
const (
	Refuse Action = iota
	Allow
	Drop
)

// Rewrite makes the server answer a query for one name with the records of
// another. The records in the response are owned by the name in the question.
type Rewrite struct {
	From, To dnsname.Name
	// Exact excludes the names below From.
	Exact bool
}

// Blocklist lists blocked names. It includes all names below them.
type Blocklist struct {
	Names []dnsname.Name
	Files []string
	// Zero answers with the address 0.0.0.0 or :: instead of NXDOMAIN.
	Zero bool
	// TTL is the TTL of that address, in seconds.
	TTL uint32
}

// Hosts are names with configured addresses.
type Hosts struct {
	Lines []string // as in hosts(5)
	Files []string
	TTL   uint32 // in seconds
}

// Filter applies a Config to queries. Its methods are safe for concurrent use.
type Filter struct {
	cfg     Config
	exact   map[string]string // new names by exact name, in wire form
	suffix  map[string]string
	lines   *list            // parsed Config.Hosts.Lines
	blocked [2]dnswire.RRset // the A and AAAA RRsets of blocked names with Zero
	tables  atomic.Pointer[tables]

	changing sync.Mutex // held while tables are replaced
}

// tables are the lookup tables built from the configuration and the files. They
// are immutable and replaced as a whole.
type tables struct {
	blocked map[string]struct{}
	hosts   map[string]host
	lists   map[source]*list // the parsed files; a file that never existed has none
}

// host holds the RRsets of one name.
type host struct{ a, aaaa, ptr dnswire.RRset }

// Names passed to the following methods are in lower-case wire form without the
// root's closing zero octet.

// Access returns the action for a query of client for name.
func (r *Filter) Access(client netip.Addr, name []byte) Action {
	for i := range r.cfg.Access {
		if a := &r.cfg.Access[i]; a.matches(client, name) {
			return a.Action
		}
	}
	return Allow
}

func (a *AccessRule) matches(client netip.Addr, name []byte) bool {
	return matches(a.Clients, a.Names, client, name)
}

// matches reports whether one of the prefixes contains the client, and one of the
// names contains name. Empty lists contain all.
func matches(clients []netip.Prefix, names []dnsname.Name, client netip.Addr, name []byte) bool {
	isClient := func(p netip.Prefix) bool { return p.Contains(client) }
	holds := func(n dnsname.Name) bool { return n.Contains(name) }
	return (len(clients) == 0 || slices.ContainsFunc(clients, isClient)) &&
		(len(names) == 0 || slices.ContainsFunc(names, holds))
}

// Suppresses reports whether name, which is outside the zones served here, has no
// records of type t for client.
func (r *Filter) Suppresses(client netip.Addr, name []byte, t dnswire.Type) bool {
	for i := range r.cfg.Suppress {
		s := &r.cfg.Suppress[i]
		if slices.Contains(s.Types, t) && matches(s.Clients, s.Names, client, name) {
			return !slices.ContainsFunc(r.cfg.Served, func(z dnsname.Name) bool { return z.Contains(name) })
		}
	}
	return false
}

// SuppressesType reports whether some names may have no records of type t for some clients.
func (r *Filter) SuppressesType(t dnswire.Type) bool {
	return slices.ContainsFunc(r.cfg.Suppress, func(s Suppression) bool { return slices.Contains(s.Types, t) })
}

// Rewrite returns the name whose records answer a query for name, and whether a
// rule rewrote it. The new name is in room, which must have a capacity of
// dnsname.MaxWire octets. The rule with the longest matching name applies. If
// the new name would be too long, name is not rewritten.
func (r *Filter) Rewrite(name, room []byte) (renamed []byte, rewritten bool) {
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

// Blocked reports whether name is blocked. If so, denied reports whether the
// response is NXDOMAIN; otherwise set is the answer, and a set without records
// means NODATA.
func (r *Filter) Blocked(name []byte, t dnswire.Type) (set dnswire.RRset, denied, blocked bool) {
	names := r.tables.Load().blocked
	if len(names) == 0 {
		return set, false, false
	}
	for off := 0; ; off += 1 + int(name[off]) {
		if _, ok := names[string(name[off:])]; ok {
			return r.zeroAddress(t), !r.cfg.Block.Zero, true
		}
		if off == len(name) {
			return set, false, false
		}
	}
}

func (r *Filter) zeroAddress(t dnswire.Type) (set dnswire.RRset) {
	for _, set := range r.blocked {
		if set.Type == t {
			return set
		}
	}
	return set
}

// Host returns the RRset of type t that the hosts files have for name, and
// whether they have name at all. The set is empty if name has only records of
// other types.
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
