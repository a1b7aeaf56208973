package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// resolved adds elements to sets of kind Resolved, and flows that are cut.
type resolved struct {
	mu     sync.Mutex
	socket *netlink.Conn
	// What the kernel has.
	sets     map[string]struct{}
	families []*family
	// replaces: the kernel does not refresh the timeout of an element that is added again (before Linux
	// 6.12), so that it is replaced.
	replaces bool
	commits  uint32 // transactions beside those of Apply and Sync
}

// others returns the number of transactions with any table in the network namespace, less those beside Apply and
// Sync; numbers that differ by those of others.
func (r *resolved) others(socket *netlink.Conn) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, err := nfnetlink.Generation(socket)
	return all - r.commits, err
}

// know notes that the kernel has a set, and forget that it has some no longer.
func (r *resolved) know(set string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets[set] = struct{}{}
}

func (r *resolved) forget(sets []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range sets {
		delete(r.sets, name)
	}
}

// Assume has ChangeResolved take the sets of kind Resolved of rs for those of the kernel, whose table another
// process programs.
func (t *Table) Assume(rs ruleset.Ruleset) {
	t.resolved.mu.Lock()
	defer t.resolved.mu.Unlock()
	t.resolved.families = familiesOf(rs)
	clear(t.resolved.sets)
	for name, s := range rs.Sets() {
		if s.Kind == ruleset.Resolved {
			t.resolved.sets[name] = struct{}{}
		}
	}
}

// ChangeResolved makes changes of sets of kind Resolved in one transaction. It returns when the kernel lets
// packets to addresses that were added pass. Its error wraps ErrUnknownSet if the kernel lacks a set that is added
// to; nothing has changed then. To remove from such a set is no error.
func (t *Table) ChangeResolved(all []ruleset.Resolution) error {
	t.resolved.mu.Lock()
	defer t.resolved.mu.Unlock()
	b := &batch{table: t.cfg.Name}
	removes := true
	for _, r := range all {
		_, known := t.resolved.sets[r.Set]
		switch {
		case r.TTL > 0:
			removes = false
			if !known {
				return tableError(t.cfg.Name, fmt.Errorf("set %s: %w", r.Set, ErrUnknownSet))
			}
			t.resolved.add(b, r)
		case known:
			t.resolved.remove(b, r)
		}
	}
	if len(b.Buf) == 0 {
		return nil
	}
	err := t.commitBeside(b)
	switch {
	case errors.Is(err, unix.ENOENT) && removes && len(all) == 1:
		return nil
	case errors.Is(err, unix.ENOENT):
		err = ErrUnknownSet
	}
	if err != nil {
		return tableError(t.cfg.Name, err)
	}
	return nil
}

// elementsOf returns the elements of addresses, by family.
func elementsOf(addrs []netip.Addr, ttl time.Duration) map[*family][]element {
	all := make(map[*family][]element)
	ttl = max(ttl, time.Millisecond) // 0 would be for ever
	for _, a := range addrs {
		a = a.Unmap()
		e := element{key: string(a.AsSlice()), timeout: ttl, expires: ttl}
		all[familyOf(a)] = append(all[familyOf(a)], e)
	}
	return all
}

func (r *resolved) add(b *batch, c ruleset.Resolution) {
	all := elementsOf(c.Addrs, c.TTL)
	for _, f := range r.families { // Pods without addresses of a family send it nothing
		name, elements := c.Set+f.suffix, all[f]
		b.edit(addition, name, elements)
		if r.replaces {
			b.edit(deletion, name, elements)
			b.edit(addition, name, elements)
		}
	}
}

// remove adds the elements first: the kernel refuses to delete what has expired.
func (r *resolved) remove(b *batch, c ruleset.Resolution) {
	all := elementsOf(c.Addrs, time.Minute)
	for _, f := range r.families {
		b.edit(addition, c.Set+f.suffix, all[f])
		b.edit(deletion, c.Set+f.suffix, all[f])
	}
}

// commitBeside commits a transaction beside those of Apply. The caller must hold resolved.mu.
func (t *Table) commitBeside(b *batch) error {
	r := &t.resolved
	if r.socket == nil {
		socket, err := t.connect(ofResolved)
		if err != nil {
			return err
		}
		r.socket = socket
	}
	err := b.Commit(r.socket)
	if err != nil {
		closeSocket(&r.socket) // it may have more answers
		return err
	}
	r.commits++
	return nil
}
