// Package autopath reads the search paths of a query. A resolver would try them in one
// query each; the server tries them within one query.
//
// The KEP "DNS Autopath in PodSpec" has two ways to send them: in the name, as
// NAME.search.NAMESPACE.ZONE.SUFFIX, or in an EDNS option, see Option.
package autopath

import (
	"bytes"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Config configures a Reader.
type Config struct {
	// Suffix ends names that carry a search path; the root turns them off.
	Suffix dnsname.Name
	// Zones are the cluster domains of such names.
	Zones []dnsname.Name
	// Host are the search paths of nodes. They follow the cluster's own unless a query
	// carries all paths.
	Host []dnsname.Name
	// Option is the code of the EDNS option; 0 turns it off. Only Clients may send it;
	// all clients if Clients is empty.
	Option  uint16
	Clients []netip.Prefix
	// MaxPaths is the largest number of paths in an option, MaxOctets its largest
	// length.
	MaxPaths, MaxOctets int
}

// DefaultSuffix is the KEP's.
const DefaultSuffix = "ap.k8s.io"

// Reader reads search paths. It is safe for concurrent use.
type Reader struct {
	cfg    Config
	suffix []byte
	zones  [][]byte // in wire form without the zero octet of the root, as all names here
	host   [][]byte
}

// New returns a Reader.
func New(cfg Config) *Reader {
	r := &Reader{cfg: cfg, suffix: wire(cfg.Suffix)}
	for _, z := range cfg.Zones {
		r.zones = append(r.zones, wire(z))
	}
	for _, h := range cfg.Host {
		r.host = append(r.host, wire(h))
	}
	return r
}

func wire(n dnsname.Name) []byte { return []byte(n.WireLabels()) }

// OptionCode returns the code of the EDNS option; 0 if it is off.
func (r *Reader) OptionCode() uint16 { return r.cfg.Option }

// MayAsk reports whether the client may send the option.
func (r *Reader) MayAsk(client netip.Addr) bool {
	return len(r.cfg.Clients) == 0 ||
		slices.ContainsFunc(r.cfg.Clients, func(p netip.Prefix) bool { return p.Contains(client) })
}

// Labels of names that carry a search path, and of the specification's names.
const (
	labelSearch  = "\x06search"
	labelService = "\x03svc"
)

// Place is where a name is relative to the suffix.
type Place uint8

// The places.
const (
	Outside Place = iota // not below it
	Named                // NAME.search.NAMESPACE.ZONE.SUFFIX
	Above                // an ancestor of such names
	Nothing              // below the suffix, and neither of these
)

// Name returns where a lower-case name is relative to the suffix. If the name carries a
// search path, Name stores it in s.
func (r *Reader) Name(name []byte, s *Search) Place {
	rest, is := bytes.CutSuffix(name, r.suffix)
	if !is || len(r.suffix) == 0 || !isCut(name, len(rest)) {
		return Outside
	}
	for _, z := range r.zones {
		if len(rest) <= len(z) {
			if bytes.HasSuffix(z, rest) && isCut(z, len(z)-len(rest)) {
				return Above
			}
			continue
		}
		front, is := bytes.CutSuffix(rest, z)
		if !is || !isCut(rest, len(front)) {
			continue
		}
		return r.front(front, z, s)
	}
	return Nothing
}

// front is Name for the labels before the zone.
func (r *Reader) front(front, zone []byte, s *Search) Place {
	var at, before int // where the last label begins, and the one before it
	last := -1
	for off := 0; off < len(front); off += 1 + int(front[off]) {
		last, before, at = before, at, off
	}
	switch {
	case last < 0, at == 0:
		return Above // NAMESPACE.ZONE.SUFFIX
	case string(front[before:at]) != labelSearch || !isNamespace(front[at+1:]):
		return Nothing
	case before == 0:
		return Above // search.NAMESPACE.ZONE.SUFFIX
	}
	s.begin(front[:before])
	s.addCluster(front[at:], zone)
	s.paths = append(s.paths, r.host...)
	return Named
}

// isNamespace reports whether a label can be a Namespace's name (RFC 1123, section
// 2.1), which needs no escapes in an option.
func isNamespace(label []byte) bool {
	return !bytes.ContainsFunc(label,
		func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') })
}

// IsCluster reports whether a name is in a cluster domain.
func (r *Reader) IsCluster(name []byte) bool {
	return slices.ContainsFunc(r.zones,
		func(z []byte) bool { return bytes.HasSuffix(name, z) && isCut(name, len(name)-len(z)) })
}

// isCut reports whether a label of name begins at the given place, or name ends.
func isCut(name []byte, at int) bool {
	off := 0
	for off < at {
		off += 1 + int(name[off])
	}
	return off == at
}

// Search is a name and the paths that it shall be searched for in. Its zero
// value is ready to be read into; what it holds is good until then.
type Search struct {
	name  []byte
	paths [][]byte
	room  []byte
}

// begin forgets all, and searches for name.
func (s *Search) begin(name []byte) { s.name, s.paths, s.room = name, s.paths[:0], s.room[:0] }

// addCluster adds the paths of a Namespace, one label, in a zone:
// NAMESPACE.svc.ZONE, svc.ZONE and ZONE.
func (s *Search) addCluster(namespace, zone []byte) {
	start := len(s.room)
	s.room = append(append(append(s.room, namespace...), labelService...), zone...)
	all := s.room[start:]
	s.paths = append(s.paths, all, all[len(namespace):], all[len(namespace)+len(labelService):])
}

// Name is what is searched for.
func (s *Search) Name() []byte { return s.name }

// Len is how many names there are to look for: one for each path, and the name
// as it was given.
func (s *Search) Len() int { return len(s.paths) + 1 }

// Append appends the ith of them; nil when no name can be so long.
func (s *Search) Append(b []byte, i int) []byte {
	b = append(b, s.name...)
	if i < len(s.paths) {
		b = append(b, s.paths[i]...)
	}
	if len(b) >= dnsname.MaxWire {
		return nil
	}
	return b
}
