package fqdn

import (
	"bytes"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// maxAliases is how many CNAME records are followed; the DNS server follows no more.
const maxAliases = 10

// resolution is the names in an answer that are in sets, and the addresses that
// they have by it. It has the memory for that, and is used again.
type resolution struct {
	matched   [maxAliases + 2][]byte // in room or of the caller
	count     int
	addresses []address
	room      [maxAliases + 1][dnsname.MaxWire]byte
}

// address is an address of a name, and its TTL in seconds: the lowest on the way to it.
type address struct {
	addr netip.Addr
	ttl  uint32
}

// names are the names that are in sets.
func (r *resolution) names() [][]byte { return r.matched[:r.count] }

func (r *resolution) match(p *patterns, name []byte) {
	if p.matches(name) {
		r.matched[r.count] = name
		r.count++
	}
}

// isPossible reports whether an answer to a query for a name may be of names in sets. The
// usual answer is not: it has no alias, and no set is interested in its name.
func (p *patterns) isPossible(name, answer []byte) bool {
	if p.matches(name) {
		return true
	}
	first := dnswire.NewAnswerReader(answer)
	return first.Next() && (first.Type() == dnswire.TypeCNAME || !first.IsOfQuestion())
}

// resolve reads an answer to a query for a name. The name counts, and each name on the
// way along its aliases; the addresses are those at its end. It reports whether any
// name is in a set and has addresses.
//
// The aliases are as trustworthy as the upstream server: a resolver looks up the target
// of an alias itself, and does not believe the server of the alias.
func (p *patterns) resolve(r *resolution, name, answer []byte) bool {
	r.count, r.addresses = 0, r.addresses[:0]
	r.match(p, name)
	from := dnswire.NewAnswerReader(answer)
	owner := from.AppendQuestion(r.room[0][:0])
	ttl := ^uint32(0)
	for alias := 1; ; alias++ {
		target := nextAlias(from, owner, &ttl, r.room[min(alias, maxAliases)][:0])
		if target == nil {
			break
		}
		if alias > maxAliases {
			return false
		}
		if !bytes.Equal(target, name) { // an alias that a search made
			r.match(p, target)
		}
		owner = target
	}
	if r.count == 0 {
		return false
	}
	for from.Next() {
		if addr := from.Addr(); addr.IsValid() && ownedBy(&from, owner) {
			r.addresses = append(r.addresses, address{addr, min(ttl, from.TTL())})
		}
	}
	return len(r.addresses) > 0
}

// nextAlias returns the target of an owner's alias, in room, and lowers ttl to that of
// the alias; nil without one.
func nextAlias(from dnswire.AnswerReader, owner []byte, ttl *uint32, room []byte) (target []byte) {
	for from.Next() {
		switch from.Type() {
		case dnswire.TypeCNAME:
			if ownedBy(&from, owner) {
				*ttl = min(*ttl, from.TTL())
				return from.AppendTarget(room)
			}
		case dnswire.TypeA, dnswire.TypeAAAA:
			if ownedBy(&from, owner) {
				return nil // it has no alias, then
			}
		}
	}
	return nil
}

func ownedBy(r *dnswire.AnswerReader, owner []byte) bool {
	var room [dnsname.MaxWire]byte
	return bytes.Equal(r.AppendOwner(room[:0]), owner)
}

// isRoutable reports whether an address may be given to a set. The others lead to the
// node or to what every node has, such as a cloud's metadata server: a name of somebody
// else's zone must not open them. An IPv4 address in IPv6 form is none that packets have.
func isRoutable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast() && !a.Is4In6()
}
