package flows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// maxHeld bounds the flows that the kernel drops for this process: as many as it has room for of each family. A
// share has at most as many as are free, so that one with many leaves room for others.
const maxHeld = 1 << 16

// maxCut is how many flows are cut with one transaction.
const maxCut = 4096

// hold is that the kernel drops a flow.
type hold struct {
	until time.Time
	share string
}

// denied is a flow that policies do not allow.
type denied struct {
	flow     ruleset.Flow
	identity ctnetlink.Identity
	share    string
}

// end ends flows of a family, and counts them.
func (c *Cutter) end(t table, family ctnetlink.Family, all []denied, p *Pass) error {
	var cut []ruleset.Flow
	var gone, uncut []ctnetlink.Identity // gone are of cut
	for _, d := range all {
		if c.hold(d.flow, d.share) {
			cut, gone = append(cut, d.flow), append(gone, d.identity)
		} else {
			uncut = append(uncut, d.identity)
		}
	}
	if len(cut) > 0 {
		if err := c.cfg.Cut(cut); err != nil {
			c.letGo(cut)
			if !errors.Is(err, c.cfg.Full) {
				return fmt.Errorf("cut %d flows: %w", len(cut), err)
			}
			gone, uncut = nil, append(uncut, gone...)
		}
	}
	deleted, err := t.Delete(family, gone)
	p.Cut += deleted
	if err != nil {
		return err
	}
	deleted, err = t.Delete(family, uncut)
	p.Cut += deleted
	p.Uncut += deleted
	return err
}

// hold notes that the kernel is to drop a flow, and reports whether its share has room for it.
func (c *Cutter) hold(f ruleset.Flow, share string) bool {
	if _, known := c.held[f]; known {
		c.letGo([]ruleset.Flow{f})
	} else if c.shares[share] >= maxHeld-len(c.held) {
		return false
	}
	c.held[f] = hold{time.Now().Add(c.cfg.CutTime), share}
	c.shares[share]++
	return true
}

// letGo notes that the kernel does not drop flows.
func (c *Cutter) letGo(all []ruleset.Flow) {
	for _, f := range all {
		h, known := c.held[f]
		if !known {
			continue
		}
		delete(c.held, f)
		if c.shares[h.share]--; c.shares[h.share] == 0 {
			delete(c.shares, h.share)
		}
	}
}

// release takes back the cut of flows that policies allow again: a client may use a port again.
func (c *Cutter) release() error {
	now := time.Now()
	all := make([]ruleset.Flow, 0, len(c.held))
	var expired, allowed []ruleset.Flow
	for f, h := range c.held {
		if now.After(h.until) {
			expired = append(expired, f)
		} else {
			all = append(all, f)
		}
	}
	c.letGo(expired)
	for some := range slices.Chunk(all, together) {
		denied := make([]bool, len(some))
		for _, d := range c.cfg.Denied(some) {
			denied[d.Flow] = true
		}
		for i, f := range some {
			if !denied[i] {
				allowed = append(allowed, f)
			}
		}
	}
	for some := range slices.Chunk(allowed, maxCut) {
		if err := c.cfg.Uncut(some); err != nil {
			return fmt.Errorf("allow %d flows again: %w", len(some), err)
		}
		c.letGo(some)
	}
	return nil
}
