package fqdn

import (
	"container/list"
	"math"
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// table is what is known of names that are in sets: their addresses, and until when the
// kernel has them. Expired addresses are removed. A Gate's mutex guards it.
//
// It counts what costs: elements, which are addresses in sets. An address of a name takes its elements in all
// sets of the name, or none; one without sets takes one. Where a Namespace has too many, in all or in a set,
// what it resolved longest ago goes. Where all have too many, the same is done in the Namespace with the most,
// so that none loses anything while it has less than an equal share.
type table struct {
	cfg        *Config
	start      time.Time
	namespaces map[string]*account
	used       int // elements of all Namespaces
	elements   map[element]placed
	gone       map[element]struct{} // to be removed from the kernel
	losses     int                  // how often the kernel lost its sets
	recalled   given                // by a process before

	overflows  [limits]uint64
	evicted    uint64
	unroutable uint64
}

// element is an address in a set.
type element struct {
	set  string
	addr netip.Addr
}

// placed is an element that names have.
type placed struct {
	names  int   // how many have it
	until  int64 // until when the kernel has it; 0 if it does not
	losses int   // table.losses then
}

// limit is a limit of a table.
type limit int

const (
	limitName limit = iota
	limitSet
	limitNamespace
	limitAll
	limits
)

var limitNames = [limits]string{"name", "set", "namespace", "all"}

// name is a name with the addresses that a Namespace has of it. Times are in nanoseconds since the table's
// start, by the monotonic clock. Changes are numbered from 1.
type name struct {
	wire       string
	in         *account
	of         *patterns // that sets are by
	losses     int       // table.losses, when the addresses were last known to be in the kernel
	sets       []string  // sorted
	addresses  []known
	answered   int64           // when it was last, within touchTime
	place      *list.Element   // in in.order; nil while there are no addresses
	places     []*list.Element // in the orders of in.shares, as sets
	requested  uint64          // the last change
	programmed uint64          // the kernel has this change and those before
	queued     [urgencies]bool
	advanced   chan struct{} // closed when programmed increases; nil if nothing waits
}

// known is an address.
type known struct {
	addr     netip.Addr
	answered int64 // when it was last
	// until is when it leaves the kernel; 0 if it is not there.
	until int64
	// wanted is until when it is to stay, by the change with this number.
	wanted int64
	number uint64
}

func newTable(cfg *Config) table {
	return table{
		cfg: cfg, start: time.Now(), namespaces: make(map[string]*account),
		elements: make(map[element]placed), gone: make(map[element]struct{}),
		recalled: given{most: max(1, cfg.MaxElements/4)},
	}
}

// now returns the time, which is above 0.
func (t *table) now() int64 { return int64(time.Since(t.start)) + 1 }

// progress returns what is closed when the kernel has more changes.
func (n *name) progress() <-chan struct{} {
	if n.advanced == nil {
		n.advanced = make(chan struct{})
	}
	return n.advanced
}

// done notes that the kernel has all changes up to a number.
func (n *name) done(number uint64) {
	for i := range n.addresses {
		if k := &n.addresses[i]; k.number > n.programmed && k.number <= number {
			k.until = k.wanted
		}
	}
	n.programmed = max(n.programmed, number)
	if n.advanced != nil {
		close(n.advanced)
		n.advanced = nil
	}
}

// request makes a change of all addresses: the kernel does not have them in all sets.
func (n *name) request() {
	n.requested++
	for i := range n.addresses {
		n.addresses[i].until, n.addresses[i].number = 0, n.requested
	}
}

// note notes the addresses that a name has by an answer to a Pod of a Namespace. isNew reports whether the
// kernel has to be told. number is the change that the answer has to wait for; 0 for none.
func (t *table) note(p *patterns, in *account, wire []byte, addrs []address, at int64) (
	n *name, number uint64, isNew bool,
) {
	n = in.names[string(wire)]
	if n == nil {
		n = &name{wire: string(wire), in: in}
	}
	isNew = t.assign(n, p, at)
	if len(n.sets) == 0 {
		return n, 0, isNew // the sets changed since the answer was read
	}
	n.touch(at)
	next, more := n.requested+1, false
	for _, a := range addrs {
		if !isRoutable(a.addr) {
			t.unroutable++
			continue
		}
		k := t.find(n, a.addr, at)
		if k == nil {
			continue
		}
		k.answered = at
		use := max(min(time.Duration(a.ttl)*time.Second, t.cfg.MaxTTL), t.cfg.MinTTL)
		needed := at + int64(use)
		switch {
		case k.wanted < needed+int64(t.cfg.Grace/2):
			k.wanted, k.number, more = needed+int64(t.cfg.Grace), next, true
			n.remember(p, a.addr)
		case k.number <= n.programmed:
			continue // the kernel has it
		}
		if k.until < needed {
			number = max(number, k.number)
		}
	}
	if more {
		n.requested = next
	}
	return n, number, isNew || more
}

// find returns the place of an address of a name; nil if a limit does not allow it.
func (t *table) find(n *name, addr netip.Addr, at int64) *known {
	i := slices.IndexFunc(n.addresses, func(k known) bool { return k.addr == addr })
	if i >= 0 {
		return &n.addresses[i]
	}
	if len(n.addresses) >= t.cfg.MaxPerName && !t.forget(n, at) {
		t.overflow(limitName, n, at)
		return nil
	}
	if l, ok := t.makeRoom(n, cost(n.sets), at); !ok {
		t.overflow(l, n, at)
		if len(n.addresses) == 0 {
			n.leave()
		}
		return nil
	}
	if n.place == nil {
		n.enter(at)
	}
	until := t.untilInKernel(n, addr)
	n.addresses = append(n.addresses, known{addr: addr, until: until, wanted: until})
	t.count(n.in, cost(n.sets))
	for _, set := range n.sets {
		t.hold(n.in, element{set, addr})
	}
	return &n.addresses[len(n.addresses)-1]
}

// untilInKernel returns until when an address is in all sets of a name, because of other names; 0 if it is not.
func (t *table) untilInKernel(n *name, addr netip.Addr) int64 {
	least := int64(math.MaxInt64)
	for _, set := range n.sets {
		least = min(least, t.untilOf(element{set, addr}))
	}
	return least
}

// untilOf returns until when the kernel has an element; 0 if it does not.
func (t *table) untilOf(e element) int64 {
	p := t.elements[e]
	if p.losses != t.losses {
		return 0
	}
	return p.until
}

// placed notes until when the kernel has an element.
func (t *table) placed(e element, until int64) {
	if p, ok := t.elements[e]; ok {
		p.until, p.losses = until, t.losses
		t.elements[e] = p
	}
}

// tellTime is the shortest time between two lines of the log about the limits of a Namespace.
const tellTime = int64(time.Minute)

func (t *table) overflow(l limit, n *name, at int64) {
	t.overflows[l]++
	if at-n.in.told < tellTime {
		return
	}
	n.in.told = at
	text, _, _ := dnsname.FromWire(append([]byte(n.wire), 0))
	t.cfg.Log.Warn("too many addresses of names in policies; packets to further ones are denied", "limit", limitNames[l],
		"namespace", n.in.name, "name", text.String(), "sets", len(n.sets), "elements", n.in.used, "all", t.used)
}

// expire removes the addresses of a name that have expired, and the name if none is left.
func (t *table) expire(n *name, at int64) {
	n.addresses = slices.DeleteFunc(n.addresses, func(k known) bool {
		expired := max(k.until, k.wanted) < at
		if expired {
			t.release(n, k.addr, at)
		}
		return expired
	})
	if len(n.addresses) == 0 {
		n.leave()
	}
}

// assign finds the sets of a name by p, unless that is done. It reports whether the
// addresses must be added: to sets that the name was not in before, or because the kernel
// lost them.
func (t *table) assign(n *name, p *patterns, at int64) (added bool) {
	if n.of == p && n.losses == t.losses {
		return false
	}
	if n.of != p {
		n.of = p
		added = t.move(n, p.match(n.in.name, []byte(n.wire)), at)
		for _, k := range n.addresses {
			n.remember(p, k.addr)
		}
	}
	if n.losses != t.losses {
		n.losses, added = t.losses, true
	}
	added = added && len(n.addresses) > 0 && len(n.sets) > 0
	if added {
		n.request()
	}
	return added
}
