package zone

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync/atomic"
)

// index holds values by address, any number at each, in the order that they
// were given in. It is two B-trees, of IPv4 and of IPv6 addresses, whose pages
// never change: an update makes the pages on its path anew and then stores the
// root, so readers take no lock and see one moment. Being in order, it finds
// prefixes too.
type index[V any] struct {
	roots [2]atomic.Pointer[page[V]] // nil when empty
}

// page is a leaf, with a value to each key, or a branch, with the least key of
// each page below it. Keys are the octets of addresses, one behind another.
type page[V any] struct {
	keys   []byte
	values []V
	pages  []*page[V] // nil in a leaf
}

// pageLen is how many values or pages a page holds, unless more are at one
// address: those stay together.
const pageLen = 64

// update replaces the values at one address.
type update[V any] struct {
	addr   netip.Addr
	values []V
}

// addrKey is the key of an address.
type addrKey struct {
	raw    [16]byte
	length int
}

func keyOf(addr netip.Addr) (k addrKey) {
	if addr.Is4() {
		v4 := addr.As4()
		k.length = copy(k.raw[:], v4[:])
		return k
	}
	return addrKey{addr.As16(), 16}
}

func (k *addrKey) octets() []byte { return k.raw[:k.length] }

// family is the number of the tree that addr is in.
func family(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// search is the number of keys that are less than key.
func search(keys, key []byte) int {
	if len(key) == 4 {
		return search4(keys, binary.BigEndian.Uint32(key))
	}
	low, high := 0, len(keys)/len(key)
	for low < high {
		middle := int(uint(low+high) / 2)
		if bytes.Compare(keys[middle*len(key):(middle+1)*len(key)], key) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// search4 is search for IPv4, the most frequent by far.
func search4(keys []byte, key uint32) int {
	low, high := 0, len(keys)/4
	for low < high {
		middle := int(uint(low+high) / 2)
		if binary.BigEndian.Uint32(keys[4*middle:]) < key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// isAt tells whether key is number i of keys.
func isAt(keys []byte, i int, key []byte) bool {
	at := i * len(key)
	return at < len(keys) && string(keys[at:at+len(key)]) == string(key)
}

// find gives the values at addr.
func (x *index[V]) find(addr netip.Addr) []V {
	k := keyOf(addr)
	key := k.octets()
	p := x.roots[family(addr)].Load()
	if p == nil {
		return nil
	}
	for p.pages != nil {
		p = p.pages[p.child(key)]
	}
	first := search(p.keys, key)
	last := first
	for isAt(p.keys, last, key) {
		last++
	}
	return p.values[first:last]
}

// count is the number of values.
func (x *index[V]) count() (n int) {
	for i := range x.roots {
		n += x.roots[i].Load().count()
	}
	return n
}

func (p *page[V]) count() (n int) {
	if p == nil {
		return 0
	}
	n = len(p.values)
	for _, below := range p.pages {
		n += below.count()
	}
	return n
}

// child is the number of the page of p that key belongs to.
func (p *page[V]) child(key []byte) int {
	i := search(p.keys, key)
	if i > 0 && !isAt(p.keys, i, key) {
		i--
	}
	return i
}

// covers tells whether there are values at any address in prefix.
func (x *index[V]) covers(prefix netip.Prefix) bool {
	k := keyOf(prefix.Addr())
	key := k.octets()
	p := x.roots[family(prefix.Addr())].Load()
	if p == nil {
		return false
	}
	var next []byte // the least key behind the page in hand
	for p.pages != nil {
		i := p.child(key)
		if behind := p.keys[(i+1)*len(key):]; len(behind) > 0 {
			next = behind
		}
		p = p.pages[i]
	}
	if here := p.keys[search(p.keys, key)*len(key):]; len(here) > 0 {
		next = here
	}
	return len(next) > 0 && hasPrefix(next, key, prefix.Bits())
}

// hasPrefix tells whether key begins with the first bits of prefix.
func hasPrefix(key, prefix []byte, bits int) bool {
	whole, rest := bits/8, 8-bits%8
	return string(key[:whole]) == string(prefix[:whole]) &&
		(rest == 8 || key[whole]>>rest == prefix[whole]>>rest)
}

// all yields each address and its values, in order.
func (x *index[V]) all(yield func(netip.Addr, []V) bool) {
	for i := range x.roots {
		if p := x.roots[i].Load(); p != nil && !p.all(yield) {
			return
		}
	}
}

func (p *page[V]) all(yield func(netip.Addr, []V) bool) bool {
	for _, below := range p.pages {
		if !below.all(yield) {
			return false
		}
	}
	for from, width := 0, p.width(); from < len(p.values); {
		key, to := p.keys[from*width:(from+1)*width], from+1
		for isAt(p.keys, to, key) {
			to++
		}
		addr, _ := netip.AddrFromSlice(key)
		if !yield(addr, p.values[from:to]) {
			return false
		}
		from = to
	}
	return true
}

// frozen is x as it is now.
func (x *index[V]) frozen() *index[V] {
	f := new(index[V])
	for i := range x.roots {
		f.roots[i].Store(x.roots[i].Load())
	}
	return f
}

func (x *index[V]) empty() bool { return x.roots[0].Load() == nil && x.roots[1].Load() == nil }

// update makes changes, which are in order of address.
func (x *index[V]) update(changes []update[V]) {
	v6 := slices.IndexFunc(changes, func(c update[V]) bool { return !c.addr.Is4() })
	if v6 < 0 {
		v6 = len(changes)
	}
	for i, part := range [...][]update[V]{changes[:v6], changes[v6:]} {
		if len(part) > 0 {
			x.roots[i].Store(x.roots[i].Load().updatedRoot(part))
		}
	}
}

// updatedRoot is the root of the tree below p, a root, with changes made.
func (p *page[V]) updatedRoot(changes []update[V]) *page[V] {
	if p == nil {
		p = new(page[V])
	}
	pages := p.updated(changes)
	for len(pages) > 1 {
		above := new(page[V])
		above.append(pages)
		pages = above.split()
	}
	if len(pages) == 0 {
		return nil
	}
	p = pages[0]
	for len(p.pages) == 1 {
		p = p.pages[0]
	}
	return p
}

// updated are the pages that stand in p's place after changes: of the same
// height, none empty.
func (p *page[V]) updated(changes []update[V]) []*page[V] {
	if p.pages == nil {
		return p.updatedLeaf(changes).split()
	}
	made := &page[V]{keys: make([]byte, 0, len(p.keys)+16), pages: make([]*page[V], 0, len(p.pages)+1)}
	from := 0
	for len(changes) > 0 {
		k := keyOf(changes[0].addr)
		to := p.child(k.octets())
		made.take(p, from, to)
		mine := p.changesOf(to, changes)
		made.append(p.pages[to].updated(mine))
		changes, from = changes[len(mine):], to+1
	}
	made.take(p, from, len(p.pages))
	return made.split()
}

// changesOf are those of changes that are of p's page number i, which the
// first one is of.
func (p *page[V]) changesOf(i int, changes []update[V]) []update[V] {
	if i+1 == len(p.pages) {
		return changes
	}
	width, n := p.width(), 1
	behind := p.keys[(i+1)*width : (i+2)*width]
	for n < len(changes) {
		k := keyOf(changes[n].addr)
		if bytes.Compare(k.octets(), behind) >= 0 {
			break
		}
		n++
	}
	return changes[:n]
}

// updatedLeaf is p, a leaf, with changes made, however long.
func (p *page[V]) updatedLeaf(changes []update[V]) *page[V] {
	more, width := 0, keyOf(changes[0].addr).length
	for _, c := range changes {
		more += len(c.values)
	}
	made := &page[V]{
		keys:   make([]byte, 0, len(p.keys)+more*width),
		values: make([]V, 0, len(p.values)+more),
	}
	from := 0
	for _, c := range changes {
		k := keyOf(c.addr)
		key := k.octets()
		to := from + search(p.keys[from*width:], key)
		made.take(p, from, to)
		for from = to; isAt(p.keys, from, key); {
			from++ // replaced
		}
		for _, v := range c.values {
			made.keys = append(made.keys, key...)
			made.values = append(made.values, v)
		}
	}
	made.take(p, from, len(p.values))
	return made
}

// take appends what q holds between from and to.
func (p *page[V]) take(q *page[V], from, to int) {
	if from == to {
		return
	}
	width := q.width()
	p.keys = append(p.keys, q.keys[from*width:to*width]...)
	if q.pages != nil {
		p.pages = append(p.pages, q.pages[from:to]...)
	} else {
		p.values = append(p.values, q.values[from:to]...)
	}
}

// append appends pages to p, a branch. One that became short is joined with
// its neighbour.
func (p *page[V]) append(pages []*page[V]) {
	if last := len(p.pages) - 1; last >= 0 && len(pages) == 1 && pages[0].len() < pageLen/4 {
		joined := new(page[V])
		joined.take(p.pages[last], 0, p.pages[last].len())
		joined.take(pages[0], 0, pages[0].len())
		p.keys, p.pages = p.keys[:last*p.width()], p.pages[:last]
		pages = joined.split()
	}
	for _, q := range pages {
		p.keys = append(p.keys, q.keys[:q.width()]...)
		p.pages = append(p.pages, q)
	}
}

// split cuts p into pages of even length. Values at one address stay together.
func (p *page[V]) split() []*page[V] {
	total := p.len()
	switch {
	case total == 0:
		return nil
	case total <= pageLen:
		return []*page[V]{p}
	}
	width, parts := p.width(), (total+pageLen-1)/pageLen
	made := make([]*page[V], 0, parts)
	from := 0
	for i := range parts {
		to := max(from, (i+1)*total/parts)
		for from < to && isAt(p.keys, to, p.keys[(to-1)*width:to*width]) {
			to++
		}
		if from < to {
			part := new(page[V])
			part.take(p, from, to)
			made = append(made, part)
		}
		from = to
	}
	return made
}

// len is how many values or pages p holds.
func (p *page[V]) len() int { return len(p.values) + len(p.pages) }

// width is the length of a key of p, which is not empty.
func (p *page[V]) width() int { return len(p.keys) / p.len() }
