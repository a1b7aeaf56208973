package fqdn

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// table is what is known of names that are in sets: their addresses, and until when the
// kernel has them. Expired addresses are removed. While a limit is reached, no further
// ones are added: the kernel keeps each until it expires. A Gate's mutex guards it.
type table struct {
	cfg    *Config
	start  time.Time
	names  map[string]*name  // by wire form
	total  int               // addresses of all names
	perSet map[string]int    // addresses by set
	kernel map[element]int64 // until when the kernel has it
	losses int               // how often the kernel lost its sets
	given  given

	overflows  [limits]uint64
	told       [limits]int64 // when an overflow was logged
	forgotten  uint64
	unroutable uint64
}

// limit is a limit of a table.
type limit int

const (
	limitName limit = iota
	limitSet
	limitAll
	limits
)

var limitNames = [limits]string{"name", "set", "all"}

// name is a name with its addresses. Times are in nanoseconds since the table's start,
// by the monotonic clock. Changes are numbered from 1.
type name struct {
	wire       string
	of         *patterns // that sets are by
	losses     int       // table.losses, when the addresses were last known to be in the kernel
	sets       []string
	addresses  []known
	requested  uint64 // the last change
	programmed uint64 // the kernel has this change and those before
	queued     [urgencies]bool
	advanced   chan struct{} // closed when programmed increases; nil if nothing waits
}

// known is an address.
type known struct {
	addr netip.Addr
	// until is when it leaves the kernel; 0 if it is not there.
	until int64
	// wanted is until when it is to stay, by the change with this number.
	wanted int64
	number uint64
}

func newTable(cfg *Config) table {
	return table{
		cfg: cfg, start: time.Now(), names: make(map[string]*name), perSet: make(map[string]int),
		kernel: make(map[element]int64), given: given{most: max(1, cfg.MaxAddresses/4)},
		told: [limits]int64{math.MinInt64 / 2, math.MinInt64 / 2, math.MinInt64 / 2},
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

// note notes the addresses that a name has by an answer. isNew reports whether the kernel
// has to be told. number is the change that the answer has to wait for; 0 for none.
func (t *table) note(p *patterns, wire []byte, addrs []address, at int64) (n *name, number uint64, isNew bool) {
	n = t.names[string(wire)]
	if n == nil {
		n = &name{wire: string(wire)}
	}
	isNew = t.assign(n, p)
	if len(n.sets) == 0 {
		return n, 0, isNew // the sets changed since the answer was read
	}
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
		use := max(min(time.Duration(a.ttl)*time.Second, t.cfg.MaxTTL), t.cfg.MinTTL)
		needed := at + int64(use)
		switch {
		case k.wanted < needed+int64(t.cfg.Grace/2):
			k.wanted, k.number, more = needed+int64(t.cfg.Grace), next, true
			t.remember(p, n.wire, a.addr)
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
	if l, full := t.isFull(n); full {
		t.overflow(l, n, at)
		return nil
	}
	if len(n.addresses) >= t.cfg.MaxPerName {
		if !n.forget() {
			t.overflow(limitName, n, at)
			return nil
		}
		t.count(n, -1)
		t.forgotten++
	}
	if len(n.addresses) == 0 {
		t.names[n.wire] = n
	}
	until := t.untilInKernel(n, addr)
	n.addresses = append(n.addresses, known{addr: addr, until: until, wanted: until})
	t.count(n, 1)
	return &n.addresses[len(n.addresses)-1]
}

// untilInKernel returns until when an address is in all sets of a name, because of other
// names, or since it was forgotten; 0 if it is not.
func (t *table) untilInKernel(n *name, addr netip.Addr) int64 {
	least := int64(math.MaxInt64)
	for _, set := range n.sets {
		least = min(least, t.kernel[element{set, addr}])
	}
	return least
}

// count counts addresses of a name, which came or went.
func (t *table) count(n *name, addresses int) {
	t.total += addresses
	for _, set := range n.sets {
		if t.perSet[set] += addresses; t.perSet[set] == 0 {
			delete(t.perSet, set)
		}
	}
}

// forget removes the address that was answered longest ago, of those that the kernel has.
// It reports whether there is one.
func (n *name) forget() bool {
	oldest := -1
	for i, k := range n.addresses {
		if k.number <= n.programmed && (oldest < 0 || k.wanted < n.addresses[oldest].wanted) {
			oldest = i
		}
	}
	if oldest >= 0 {
		n.addresses = slices.Delete(n.addresses, oldest, oldest+1)
	}
	return oldest >= 0
}

// isFull returns the limit that does not allow one more address of a name. A name may
// be in several sets: it counts in each, and one that has room is enough.
func (t *table) isFull(n *name) (l limit, full bool) {
	if max(t.total, len(t.kernel)) >= t.cfg.MaxAddresses {
		return limitAll, true
	}
	room := func(set string) bool { return t.perSet[set] < t.cfg.MaxPerSet }
	return limitSet, !slices.ContainsFunc(n.sets, room)
}

// tellTime is the shortest time between two lines of the log about one limit.
const tellTime = int64(time.Minute)

func (t *table) overflow(l limit, n *name, at int64) {
	t.overflows[l]++
	if at-t.told[l] < tellTime {
		return
	}
	t.told[l] = at
	text, _, _ := dnsname.FromWire(append([]byte(n.wire), 0))
	t.cfg.Log.Warn("too many addresses of names in policies; packets to further ones are denied",
		"limit", limitNames[l], "name", text.String(), "addresses", t.total, "sets", n.sets)
}

// expire removes the addresses of a name that have expired, and the name if none is left.
func (t *table) expire(n *name, at int64) {
	before := len(n.addresses)
	n.addresses = slices.DeleteFunc(n.addresses, func(k known) bool { return max(k.until, k.wanted) < at })
	t.count(n, len(n.addresses)-before)
	if len(n.addresses) == 0 {
		delete(t.names, n.wire)
	}
}

// assign finds the sets of a name by p, unless that is done. It reports whether the
// addresses must be added: to sets that the name was not in before, or because the kernel
// lost them.
func (t *table) assign(n *name, p *patterns) (added bool) {
	if n.of == p && n.losses == t.losses {
		return false
	}
	before, addresses := n.sets, len(n.addresses)
	if n.losses != t.losses {
		n.losses, before = t.losses, nil
	}
	t.count(n, -addresses)
	n.of, n.sets = p, p.match(nil, []byte(n.wire))
	t.count(n, addresses)
	for _, k := range n.addresses {
		t.remember(p, n.wire, k.addr)
	}
	added = addresses > 0 && slices.ContainsFunc(n.sets, func(set string) bool { return !slices.Contains(before, set) })
	if added {
		n.request()
	}
	return added
}
