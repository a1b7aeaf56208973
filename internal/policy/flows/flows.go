// Package flows ends flows that policies no longer allow. The kernel judges the first packet of a flow
// only; an entry of connection tracking lets the others pass. Deleting the entry has the next packet
// judged as a first one. That packet may come from the other end, which may be allowed to begin flows
// of its own: then its entry would let the flow go on. So a flow is first told to be cut, in both
// directions, and then its entry is deleted.
//
//	Changed ──► Run: reads all entries, judges those of the node's Pods, cuts and deletes
package flows

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// Config configures a Cutter.
type Config struct {
	// Denied returns those of some flows that the present policies do not allow. There is at least one flow,
	// and the slice is not kept.
	Denied func([]ruleset.Flow) []Denial
	// IsPod reports whether a Pod of the node has an address: others' flows are not judged. It is cheap,
	// and safe for concurrent use; nil is true.
	IsPod func(netip.Addr) bool
	// Cut has the kernel drop packets of flows that connection tracking takes for the first of one, and
	// Uncut takes that back. The kernel forgets them after CutTime itself.
	Cut, Uncut func([]ruleset.Flow) error
	CutTime    time.Duration
	// Full is wrapped by Cut's error if the kernel has no room for the flows. Then their entries are deleted
	// all the same, as are those of a share that is full: that ends all but those whose server may begin flows
	// to the client.
	Full error
	// Passed is told of each pass, by the goroutine of Run; nil if nobody wants to know.
	Passed func(Pass)
	Log    *slog.Logger
}

// Denial is a flow that policies do not allow.
type Denial struct {
	Flow int // its place
	// Share is the Namespace of the Pod whose policies deny it: of the flows that the kernel drops, each has a
	// share.
	Share string
}

// Pass is one look at all entries.
type Pass struct {
	Duration time.Duration
	Cut      int
	Uncut    int // of them, those that were not cut, see Config.Full
	Err      error
}

// interval is the least time between the ends of passes and the next, and share which part of the time
// they take at most: one in share.
const (
	interval = 100 * time.Millisecond
	share    = 10
	// maxRest is the longest time that a change waits after a pass.
	maxRest = 5 * time.Second
)

// Cutter ends flows.
type Cutter struct {
	cfg     Config
	changed chan struct{}
	open    func() (table, error)
	// held are the flows that the kernel drops, and shares how many of them each share has. Of Run alone.
	held   map[ruleset.Flow]hold
	shares map[string]int
	forgetting
}

// table is the kernel's table of connection tracking.
type table interface {
	Each(f ctnetlink.Filter, each func(*ctnetlink.Entry)) error
	Delete(f ctnetlink.Family, all []ctnetlink.Identity) (int, error)
	Close() error
}

// New returns a Cutter. It does nothing until Run is called.
func New(cfg Config) *Cutter {
	if cfg.IsPod == nil {
		cfg.IsPod = func(netip.Addr) bool { return true }
	}
	if cfg.Passed == nil {
		cfg.Passed = func(Pass) {}
	}
	return &Cutter{
		cfg:     cfg,
		changed: make(chan struct{}, 1),
		held:    make(map[ruleset.Flow]hold),
		shares:  make(map[string]int),
		open:    func() (table, error) { return ctnetlink.Open() },
	}
}

// Changed has Run look at all flows, after the kernel has a change. It does not wait.
func (c *Cutter) Changed() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Run ends flows until ctx is done, and returns nil. What fails is repeated.
func (c *Cutter) Run(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		}
		p := c.pass()
		c.cfg.Passed(p)
		if p.Err != nil {
			c.Changed()
		}
		switch {
		case p.Err != nil && !failing:
			c.cfg.Log.Warn("cannot end flows that policies forbid; it is tried again", "err", p.Err)
		case p.Err == nil && failing:
			c.cfg.Log.Info("flows that policies forbid are ended again")
		}
		failing = p.Err != nil
		if p.Cut > 0 {
			c.cfg.Log.Info("ended flows that policies forbid", "flows", p.Cut, "took", p.Duration)
		}
		if p.Uncut > 0 {
			c.cfg.Log.Warn("too many flows were ended within a short time: some go on if their server may begin flows "+
				"to the client", "flows", p.Uncut, "time", c.cfg.CutTime)
		}
		rest := min(max(interval, share*p.Duration), maxRest)
		if failing {
			rest = maxRest
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// pass looks at all entries once.
func (c *Cutter) pass() (p Pass) {
	begin := time.Now()
	defer func() { p.Duration = time.Since(begin) }()
	t, err := c.open()
	if err != nil {
		p.Err = err
		return p
	}
	defer t.Close()
	if p.Err = c.release(); p.Err != nil {
		return p
	}
	for _, family := range families() {
		if p.Err = c.cut(t, family, &p); p.Err != nil {
			return p
		}
	}
	return p
}

// together is how many flows are judged at once.
const together = 512

// cut ends the flows of a family that are not allowed, and counts them.
func (c *Cutter) cut(t table, family ctnetlink.Family, p *Pass) error {
	var some []ruleset.Flow
	var identities []ctnetlink.Identity // of some
	var all []denied
	judge := func() {
		if len(some) == 0 {
			return
		}
		for _, d := range c.cfg.Denied(some) {
			all = append(all, denied{some[d.Flow], identities[d.Flow], d.Share})
		}
		some, identities = some[:0], identities[:0]
	}
	err := t.Each(ctnetlink.Filter{Family: family}, func(e *ctnetlink.Entry) {
		if !c.isJudged(e) {
			return
		}
		some = append(some, flowOf(e))
		identities = append(identities, e.Identity())
		if len(some) == together {
			judge()
		}
	})
	if err != nil && !errors.Is(err, ctnetlink.ErrInterrupted) {
		return err
	}
	judge()
	for some := range slices.Chunk(all, maxCut) {
		if err := c.end(t, family, some, p); err != nil {
			return err
		}
	}
	return err
}

// Each calls do with each flow of the node's Pods.
func (c *Cutter) Each(do func(ruleset.Flow)) error {
	t, err := c.open()
	if err != nil {
		return err
	}
	defer t.Close()
	for _, family := range families() {
		err := t.Each(ctnetlink.Filter{Family: family}, func(e *ctnetlink.Entry) {
			if c.isJudged(e) {
				do(flowOf(e))
			}
		})
		if err != nil && !errors.Is(err, ctnetlink.ErrInterrupted) {
			return err
		}
	}
	return nil
}

// isJudged reports whether an entry is that of a flow of a Pod. Those of zones are somebody else's: bridges
// track packets there, too.
func (c *Cutter) isJudged(e *ctnetlink.Entry) bool {
	return e.Zone == 0 && (c.cfg.IsPod(e.Original.Source.Addr()) || c.cfg.IsPod(e.Reply.Source.Addr()))
}

func flowOf(e *ctnetlink.Entry) ruleset.Flow {
	return ruleset.Flow{Protocol: ruleset.Protocol(e.Original.Protocol), Client: e.Original.Source, Server: e.Reply.Source}
}
