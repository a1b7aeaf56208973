package zone

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync/atomic"
)

// index maps addresses to values, any number at each, in the order given. It is
// a pair of B-trees, for IPv4 and IPv6 addresses, with immutable pages (copy on
// write): an update copies the pages on its path and then stores the root, so
// readers take no lock and see one version. Because keys are ordered, it finds
// prefixes too.
type index[V any] struct {
	roots [2]atomic.Pointer[page[V]] // nil if empty
}

// page is a leaf, with a value for each key, or a branch, with the least key of
// each page below it. Keys are the octets of addresses, concatenated.
type page[V any] struct {
	keys   []byte
	values []V
	pages  []*page[V] // nil in a leaf
}

// pageLen is how many values or pages a page holds, unless one address has
// more: the values of one address stay together.
const pageLen = 64

// update replaces the values of one address.
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

// family returns the index of the tree for addr.
func family(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// search returns how many keys are less than key.
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

// search4 is search for IPv4, by far the most frequent case.
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

// keyAt reports whether key i of keys equals key.
func keyAt(keys []byte, i int, key []byte) bool {
	at := i * len(key)
	return at < len(keys) && string(keys[at:at+len(key)]) == string(key)
}

// find returns the values of addr.
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
	for keyAt(p.keys, last, key) {
		last++
	}
	return p.values[first:last]
}

// count returns the number of values.
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

// child returns the index of the page of p that key belongs to.
func (p *page[V]) child(key []byte) int {
	i := search(p.keys, key)
	if i > 0 && !keyAt(p.keys, i, key) {
		i--
	}
	return i
}

// covers reports whether any address in prefix has values.
func (x *index[V]) covers(prefix netip.Prefix) bool {
	k := keyOf(prefix.Addr())
	key := k.octets()
	p := x.roots[family(prefix.Addr())].Load()
	if p == nil {
		return false
	}
	var next []byte // the least key after the current page
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

// hasPrefix reports whether key begins with the first bits of prefix.
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
		for keyAt(p.keys, to, key) {
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

// snapshot returns an immutable copy of x in constant time.
func (x *index[V]) snapshot() *index[V] {
	f := new(index[V])
	for i := range x.roots {
		f.roots[i].Store(x.roots[i].Load())
	}
	return f
}

func (x *index[V]) empty() bool { return x.roots[0].Load() == nil && x.roots[1].Load() == nil }

// update applies changes, which are sorted by address.
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

// updatedRoot returns the root of the tree that results from applying changes
// to root p.
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

// updated returns the pages that replace p after changes: of the same height,
// none empty.
func (p *page[V]) updated(changes []update[V]) []*page[V] {
	if p.pages == nil {
		return p.updatedLeaf(changes).split()
	}
	made := &page[V]{keys: make([]byte, 0, len(p.keys)+16), pages: make([]*page[V], 0, len(p.pages)+1)}
	from := 0
	for len(changes) > 0 {
		k := keyOf(changes[0].addr)
		to := p.child(k.octets())
		made.appendRange(p, from, to)
		mine := p.changesOf(to, changes)
		made.append(p.pages[to].updated(mine))
		changes, from = changes[len(mine):], to+1
	}
	made.appendRange(p, from, len(p.pages))
	return made.split()
}

// changesOf returns the prefix of changes that belongs to page i of p; the
// first change does.
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

// updatedLeaf returns the leaf p with changes applied, of any length.
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
		made.appendRange(p, from, to)
		for from = to; keyAt(p.keys, from, key); {
			from++ // replaced
		}
		for _, v := range c.values {
			made.keys = append(made.keys, key...)
			made.values = append(made.values, v)
		}
	}
	made.appendRange(p, from, len(p.values))
	return made
}

// appendRange appends the elements of q from index from to index to.
func (p *page[V]) appendRange(q *page[V], from, to int) {
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

// append appends pages to branch p. A page that became short is merged with its
// neighbor.
func (p *page[V]) append(pages []*page[V]) {
	if last := len(p.pages) - 1; last >= 0 && len(pages) == 1 && pages[0].len() < pageLen/4 {
		joined := new(page[V])
		joined.appendRange(p.pages[last], 0, p.pages[last].len())
		joined.appendRange(pages[0], 0, pages[0].len())
		p.keys, p.pages = p.keys[:last*p.width()], p.pages[:last]
		pages = joined.split()
	}
	for _, q := range pages {
		p.keys = append(p.keys, q.keys[:q.width()]...)
		p.pages = append(p.pages, q)
	}
}

// split divides p into pages of even length. Values of one address stay
// together.
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
		for from < to && keyAt(p.keys, to, p.keys[(to-1)*width:to*width]) {
			to++
		}
		if from < to {
			part := new(page[V])
			part.appendRange(p, from, to)
			made = append(made, part)
		}
		from = to
	}
	return made
}

// len returns how many values or pages p holds.
func (p *page[V]) len() int { return len(p.values) + len(p.pages) }

// width returns the length of a key of p, which must not be empty.
func (p *page[V]) width() int { return len(p.keys) / p.len() }
