package flows

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/support/ctnetlink"
)

// forgetting gathers the addresses of Pods that end at the same time: reading all entries takes 160 ms of a
// table of 100,000, and the DEL of a CNI plugin gives up after seconds.
type forgetting struct {
	reading sync.Mutex // held while entries are read for a batch

	mu   sync.Mutex
	next *batch // guarded by mu; nil if no call waits for its pass to begin
}

// batch is the addresses of one pass.
type batch struct {
	addrs map[netip.Addr]struct{} // guarded by forgetting.mu until the pass begins
	pass  sync.Once
	err   error // of the pass
}

// Forget deletes the entries of all flows of addresses whose Pods have ended: the next Pod with an address is
// not to get what others still send to the one before. One pass reads the entries, of the families that there
// are, for all calls that wait for it to begin; passes follow one another.
func (c *Cutter) Forget(addrs []netip.Addr) error {
	b := c.join(addrs)
	b.pass.Do(func() {
		c.reading.Lock()
		defer c.reading.Unlock()
		c.mu.Lock()
		c.next = nil
		c.mu.Unlock()
		b.err = c.forget(familiesOf(b.addrs), func(addr netip.Addr) bool {
			_, ok := b.addrs[addr]
			return ok
		})
	})
	return b.err
}

// join adds addresses to the batch of the next pass.
func (c *Cutter) join(addrs []netip.Addr) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &batch{addrs: make(map[netip.Addr]struct{})}
	}
	for _, addr := range addrs {
		c.next.addrs[addr] = struct{}{}
	}
	return c.next
}

// families returns those of connection tracking.
func families() []ctnetlink.Family { return []ctnetlink.Family{ctnetlink.IPv4, ctnetlink.IPv6} }

// familiesOf returns the families of some addresses.
func familiesOf(addrs map[netip.Addr]struct{}) []ctnetlink.Family {
	return slices.DeleteFunc(families(), func(f ctnetlink.Family) bool {
		for addr := range addrs {
			if addr.Is4() == (f == ctnetlink.IPv4) {
				return false
			}
		}
		return true
	})
}

// ForgetFunc deletes the entries of all flows of addresses that match, as Forget does, of both families.
func (c *Cutter) ForgetFunc(match func(netip.Addr) bool) error { return c.forget(families(), match) }

func (c *Cutter) forget(families []ctnetlink.Family, match func(netip.Addr) bool) error {
	t, err := c.open()
	if err != nil {
		return err
	}
	defer t.Close()
	var errs []error
	for _, family := range families {
		var gone []ctnetlink.Identity
		err := t.Each(ctnetlink.Filter{Family: family}, func(e *ctnetlink.Entry) {
			if match(e.Original.Source.Addr()) || match(e.Reply.Source.Addr()) || match(e.Original.Destination.Addr()) {
				gone = append(gone, e.Identity())
			}
		})
		_, failure := t.Delete(family, gone)
		errs = append(errs, err, failure)
	}
	return errors.Join(errs...)
}
