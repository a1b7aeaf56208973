package fqdn

import (
	"container/list"
	"math"
	"net/netip"
	"slices"
	"time"
)

// account is what the answers to the Pods of a Namespace brought. It counts elements of the kernel: addresses
// of its names, in each of their sets. What it has too many of goes at its own cost.
type account struct {
	name   string
	names  map[string]*name // by wire form; those with addresses
	order  list.List        // of *name: what was answered longest ago is first
	used   int              // elements
	shares map[string]*share
	given  given
	told   int64 // when an overflow was logged
}

// share is what a Namespace has of a set.
type share struct {
	order list.List // of *name, as in account
	used  int
}

// nameAt returns the name at a place of an order.
func nameAt(place *list.Element) *name {
	n, _ := place.Value.(*name)
	return n
}

func newAccount(of string) *account {
	return &account{
		name: of, names: make(map[string]*name), shares: make(map[string]*share), told: math.MinInt64 / 2,
	}
}

// freshTime is how long an address stays after an answer with it, whatever else its Namespace resolves: the
// client is about to connect.
const freshTime = 10 * time.Second

// touchTime is the shortest interval in which a name is moved in the orders that it is in.
const touchTime = time.Second

// cost is how many elements an address takes in sets.
func cost(sets []string) int { return max(1, len(sets)) }

// touch notes that a name was answered.
func (n *name) touch(at int64) {
	if n.place == nil || at-n.answered < int64(touchTime) {
		return
	}
	n.answered = at
	n.in.order.MoveToBack(n.place)
	for i, set := range n.sets {
		n.in.shares[set].order.MoveToBack(n.places[i])
	}
}

// enter notes that a name has addresses.
func (n *name) enter(at int64) {
	n.answered, n.in.names[n.wire] = at, n
	n.place = n.in.order.PushBack(n)
	n.places = n.places[:0]
	for _, set := range n.sets {
		n.places = append(n.places, n.in.share(set).order.PushBack(n))
	}
}

// leave notes that a name has no addresses any more.
func (n *name) leave() {
	if n.place == nil {
		return
	}
	delete(n.in.names, n.wire)
	n.in.order.Remove(n.place)
	n.place = nil
	for i, set := range n.sets {
		n.in.leaveShare(set, n.places[i])
	}
	n.places = nil
}

func (ns *account) share(set string) *share {
	s := ns.shares[set]
	if s == nil {
		s = new(share)
		ns.shares[set] = s
	}
	return s
}

func (ns *account) leaveShare(set string, place *list.Element) {
	s := ns.shares[set]
	if s.order.Remove(place); s.order.Len() == 0 {
		delete(ns.shares, set)
	}
}

// count counts elements of a Namespace, which came or went.
func (t *table) count(ns *account, elements int) {
	ns.used += elements
	t.used += elements
}

// hold notes that one more name of a Namespace has an element.
func (t *table) hold(ns *account, e element) {
	p, ok := t.elements[e]
	if !ok {
		delete(t.gone, e)
	}
	p.names++
	t.elements[e] = p
	ns.shares[e.set].used++
}

// unhold notes that one name fewer has an element. If none has it, it is removed from the kernel, unless it
// leaves by itself in a moment.
func (t *table) unhold(ns *account, e element, at int64) {
	ns.shares[e.set].used--
	p := t.elements[e]
	if p.names--; p.names > 0 {
		t.elements[e] = p
		return
	}
	delete(t.elements, e)
	if p.until == 0 || p.until > at+int64(ttlUnit) {
		t.gone[e] = struct{}{}
	}
}

// release notes that a name loses an address.
func (t *table) release(n *name, addr netip.Addr, at int64) {
	t.count(n.in, -cost(n.sets))
	for _, set := range n.sets {
		t.unhold(n.in, element{set, addr}, at)
	}
}

// drop removes all addresses of a name.
func (t *table) drop(n *name, at int64) {
	for _, k := range n.addresses {
		t.release(n, k.addr, at)
	}
	n.addresses = nil
	n.leave()
}

// move puts the addresses of a name into other sets, sorted, and reports whether there are some among them that
// the name was not in. Without room for that, it loses its addresses.
func (t *table) move(n *name, sets []string, at int64) (more bool) {
	if slices.Equal(n.sets, sets) {
		return false
	}
	if need := len(n.addresses) * (cost(sets) - cost(n.sets)); need > 0 {
		if l, ok := t.makeRoom(n, need, at); !ok {
			t.overflow(l, n, at)
			t.drop(n, at)
		} else if len(n.addresses) == 0 {
			n.leave()
		}
	}
	if n.place == nil {
		n.sets = sets
		return true
	}
	before, places := n.sets, n.places
	n.sets, n.places = sets, make([]*list.Element, len(sets))
	for i, set := range sets {
		if was, found := slices.BinarySearch(before, set); found {
			n.places[i] = places[was]
			continue
		}
		more = true
		n.places[i] = n.in.share(set).order.PushBack(n)
		for _, k := range n.addresses {
			t.hold(n.in, element{set, k.addr})
		}
	}
	for i, set := range before {
		if _, found := slices.BinarySearch(sets, set); found {
			continue
		}
		for _, k := range n.addresses {
			t.unhold(n.in, element{set, k.addr}, at)
		}
		n.in.leaveShare(set, places[i])
	}
	t.count(n.in, len(n.addresses)*(cost(sets)-cost(before)))
	return more
}

// makeRoom has other names of the Namespace of a name lose their addresses, or of the Namespace with the most,
// until there is room for elements. It returns the limit that does not allow them. Of several sets, one that has
// room is enough.
func (t *table) makeRoom(n *name, elements int, at int64) (l limit, ok bool) {
	ns, fresh := n.in, at-int64(freshTime)
	if elements > t.cfg.MaxPerNamespace {
		return limitNamespace, false
	}
	for ns.used+elements > t.cfg.MaxPerNamespace {
		if !t.evict(&ns.order, n, fresh, at) && !t.forget(n, at) {
			return limitNamespace, false
		}
	}
	for share := t.fullShare(n); share != nil; share = t.fullShare(n) {
		if !t.evict(&share.order, n, fresh, at) && !t.forget(n, at) {
			return limitSet, false
		}
	}
	for t.used+elements > t.cfg.MaxElements {
		of, before := t.largest(ns, elements), int64(math.MaxInt64)
		if of == ns {
			before = fresh
		}
		if !t.evict(&of.order, n, before, at) && (of != ns || !t.forget(n, at)) {
			return limitAll, false
		}
	}
	return 0, true
}

// fullShare returns the share of one of the sets of a name, if those of all are full; nil otherwise.
func (t *table) fullShare(n *name) (s *share) {
	for _, set := range n.sets {
		if s = n.in.shares[set]; s == nil || s.used < t.cfg.MaxPerSet {
			return nil
		}
	}
	return s
}

// largest returns the Namespace with the most elements, counting those that one is about to get.
func (t *table) largest(ns *account, elements int) *account {
	largest, most := ns, ns.used+elements
	for _, other := range t.namespaces {
		if other != ns && other.used > most {
			largest, most = other, other.used
		}
	}
	return largest
}

// evict removes the name that was answered longest ago, other than one, and before a time. It reports whether
// there is one, and the kernel keeps up with removals.
func (t *table) evict(order *list.List, but *name, before, at int64) bool {
	first := order.Front()
	if first != nil && nameAt(first) == but {
		first = first.Next()
	}
	if first == nil || !t.mayRemove() {
		return false
	}
	n := nameAt(first)
	if n.answered >= before {
		return false
	}
	t.evicted += uint64(len(n.addresses))
	t.drop(n, at)
	return true
}

// forget removes the address of a name that was answered longest ago. It reports whether there is one that is
// not fresh. If it is the last one, the caller has to add one, or call leave.
func (t *table) forget(n *name, at int64) bool {
	if len(n.addresses) == 0 || !t.mayRemove() {
		return false
	}
	oldest := 0
	for i, k := range n.addresses {
		if k.answered < n.addresses[oldest].answered {
			oldest = i
		}
	}
	if n.addresses[oldest].answered >= at-int64(freshTime) {
		return false
	}
	t.evicted++
	t.release(n, n.addresses[oldest].addr, at)
	n.addresses = slices.Delete(n.addresses, oldest, oldest+1)
	return true
}

// mayRemove reports whether the kernel keeps up with removals, so that what is removed stays bounded, too.
func (t *table) mayRemove() bool { return len(t.gone) < t.cfg.MaxElements/8+1 }

// resize knows the Namespaces of p, and forgets others that have no names.
func (t *table) resize(p *patterns) {
	for name := range p.namespaces {
		if t.namespaces[name] == nil {
			t.namespaces[name] = newAccount(name)
		}
	}
	for name, ns := range t.namespaces {
		if _, ok := p.namespaces[name]; !ok && len(ns.names) == 0 {
			delete(t.namespaces, name)
			continue
		}
		ns.given.most = max(1, t.cfg.MaxElements/4/max(1, len(p.namespaces)))
	}
}
