// Package fqdn enforces policies by domain name without a race: the addresses in
// an answer of the node agent's DNS are in the kernel before the Pod has the answer.
//
//	DNS answer ─► patterns ─► answer ────► table ─────────► program ─────────► kernel sets
//	(Gate.Hold)   which sets  addresses    what the kernel  many names in one
//	              a name is   at the end   has, until when  transaction
//	              in          of aliases                       │
//	              answer leaves ◄── wait, HoldLimit at most ◄──┘
//
// An answer whose name and aliases are in no set costs a lookup and allocates
// nothing. One whose addresses are in the kernel for as long as the client may use
// them leaves at once. For others a transaction is needed: the answer waits for it,
// for Config.HoldLimit at most, and then leaves anyway. What has not reached the
// kernel stays denied there, so that a failure denies and does not allow.
//
// An answer to a Pod is for the sets that rules of Pods of its Namespace name, and for no other: what a Pod
// resolves neither opens nor fills what is of another Namespace. See table for how many addresses there may be.
//
// The names are those of ruleset.Set.Domains (ClusterNetworkPolicy, DomainName:
// https://network-policy-api.sigs.k8s.io).
package fqdn

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/budget"
)

// Programmer changes the kernel's sets of kind ruleset.Resolved.
type Programmer interface {
	// ChangeResolved makes all changes or, with an error, none. To add to a set that there is not is an error,
	// to remove from it is none.
	ChangeResolved([]ruleset.Resolution) error
}

// Config configures a Gate. Zero durations and limits but Grace are the defaults below.
type Config struct {
	Programmer Programmer
	// Namespace returns that of the Pod of this node that has an address, empty if there is none. The answers to
	// other clients change nothing. It must not block.
	Namespace func(netip.Addr) string
	// MinTTL and MaxTTL are the bounds of the time for which an address is expected to be
	// used, which is the answer's TTL; MinTTL takes precedence. Grace is added to that, for
	// clients that keep addresses longer. It is 10 s at least, so that not each answer
	// needs a transaction.
	MinTTL, MaxTTL, Grace time.Duration
	// HoldLimit is the longest time for which an answer waits.
	HoldLimit time.Duration
	// MaxPerName bounds the addresses that a Namespace has of a name. The others bound elements, which are
	// addresses in sets: MaxPerSet those of a Namespace in one set, MaxPerNamespace in all, and MaxElements those
	// of all. The memory limit of the process may allow fewer in all. What was answered longest ago goes first,
	// and nothing for freshTime; what has no room then is not added. MaxHeld bounds the answers that wait.
	MaxPerName, MaxPerSet, MaxPerNamespace, MaxElements, MaxHeld int
	Log                                                          *slog.Logger
}

// The defaults. With a Grace of one minute, an address of an answer with a TTL of 5 s is
// allowed for two minutes, and renewed at intervals of 30 s while it is asked for.
const (
	DefaultMinTTL      = time.Minute
	DefaultMaxTTL      = time.Hour
	DefaultHoldLimit   = 2 * time.Second
	DefaultMaxPerName  = 256
	DefaultMaxElements = 64 << 10
	DefaultMaxHeld     = 4096
)

// The defaults of MaxPerNamespace and MaxPerSet, as parts of MaxElements.
const (
	partOfNamespace = 4
	partOfSet       = 8
)

// Shares of the memory limit, and what an element with its name, in the kernel, too, and an answer that
// waits, with its goroutine, take, in octets.
const (
	elementShare, elementCost = 0.125, 1200
	heldShare, heldCost       = 0.0625, 12 << 10
)

// withDefaults returns c with the values of zero fields, within the memory limit.
func (c Config) withDefaults() Config {
	for field, value := range map[*time.Duration]time.Duration{
		&c.MinTTL: DefaultMinTTL, &c.MaxTTL: DefaultMaxTTL, &c.HoldLimit: DefaultHoldLimit,
	} {
		if *field == 0 {
			*field = value
		}
	}
	for field, value := range map[*int]int{
		&c.MaxPerName: DefaultMaxPerName, &c.MaxElements: DefaultMaxElements, &c.MaxHeld: DefaultMaxHeld,
	} {
		if *field == 0 {
			*field = value
		}
	}
	c.Grace = max(c.Grace, ttlUnit)
	c.MaxElements = budget.Within(elementShare, elementCost, c.MaxElements)
	c.MaxPerNamespace = cmp.Or(c.MaxPerNamespace, max(1, c.MaxElements/partOfNamespace))
	c.MaxPerSet = cmp.Or(c.MaxPerSet, max(1, c.MaxElements/partOfSet))
	c.MaxHeld = budget.Within(heldShare, heldCost, c.MaxHeld)
	return c
}

// Gate puts the addresses of answers into the kernel's sets, and holds the answers
// back meanwhile. It implements respond.Gate. Its methods are safe for concurrent
// use.
type Gate struct {
	cfg      Config
	patterns atomic.Pointer[patterns]
	held     *budget.Account
	counters counters
	ended    chan struct{} // closed when Run has ended: nothing is programmed any more

	known     chan struct{} // closed by the first Update
	knownOnce sync.Once
	// patience is when answers do not wait for the first Update any more: without the API server it does
	// not come, and DNS has to work.
	patience time.Time

	resolutions sync.Pool // of *resolution

	updating sync.Mutex // held during Update and Refill

	mu    sync.Mutex // held for a short time only: Hold waits for it
	table table
	queue queue // to be programmed
	// assigned are the patterns by which all names have their sets: those before, while Update runs.
	assigned *patterns
	work     chan struct{} // has an element if queue has
}

// New returns a Gate without sets. It programs the kernel while Run runs.
func New(cfg Config) *Gate {
	cfg = cfg.withDefaults()
	g := &Gate{
		cfg:   cfg,
		held:  budget.NewAccount("policy-answers", budget.Limits{Total: cfg.MaxHeld, PerSource: max(1, cfg.MaxHeld/4)}),
		table: newTable(&cfg),
		ended: make(chan struct{}),
		known: make(chan struct{}), patience: time.Now().Add(cfg.HoldLimit),
		work: make(chan struct{}, 1),
	}
	g.assigned = compile(nil, cfg.Log)
	g.patterns.Store(g.assigned)
	g.resolutions.New = func() any { return new(resolution) }
	return g
}

// Account returns the figures of the answers that wait.
func (g *Gate) Account() budget.Stats { return g.held.Stats() }

// Update replaces the sets. The known addresses of names that a set did not have before are added to it, too. A
// name is known to a Namespace if it was in a set of it when it was answered, until its addresses expire.
//
// Call it with the sets of before and after, then change the kernel, and then call it
// with those after: no answer leaves between then without its addresses. Until the
// kernel has a new set, what is added to it is tried again.
func (g *Gate) Update(sets map[string]Set) {
	p := compile(sets, g.cfg.Log)
	g.updating.Lock()
	defer g.updating.Unlock()
	g.mu.Lock()
	g.table.resize(p)
	g.patterns.Store(p)
	g.mu.Unlock()
	g.assignAll()
	g.mu.Lock()
	g.assigned = p
	g.mu.Unlock()
	g.knownOnce.Do(func() { close(g.known) })
}

// eachName calls do with each name that has addresses, in a Namespace in the order in which they were answered.
// It holds mu, and gives it back in between.
func (g *Gate) eachName(do func(*name)) {
	const atOnce = 64
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ns := range slices.Collect(maps.Values(g.table.namespaces)) {
		all := make([]*name, 0, ns.order.Len())
		for place := ns.order.Front(); place != nil; place = place.Next() {
			all = append(all, nameAt(place))
		}
		for some := range slices.Chunk(all, atOnce) {
			for _, n := range some {
				if n.place != nil {
					do(n)
				}
			}
			g.mu.Unlock()
			runtime.Gosched()
			g.mu.Lock()
		}
	}
}

// Refill adds all known addresses again, after the kernel lost its sets.
func (g *Gate) Refill() {
	g.updating.Lock()
	defer g.updating.Unlock()
	g.mu.Lock()
	g.table.losses++
	g.mu.Unlock()
	g.assignAll()
}

// assignAll finds the sets of all names. Names that are answered meanwhile do not wait for
// it.
func (g *Gate) assignAll() {
	p, at := g.patterns.Load(), g.table.now()
	g.eachName(func(n *name) {
		if g.table.assign(n, p, at) {
			g.enqueue(n, later)
		}
		g.wakeToRemove()
	})
}

// Hold implements respond.Gate.
func (g *Gate) Hold(client netip.Addr, asked, answer []byte) (wait func(context.Context)) {
	p := g.patterns.Load()
	if p.isEmpty() {
		return g.holdUnknown(client, asked, answer)
	}
	if !p.isPossible(asked, answer) {
		return nil
	}
	waits := g.resolve(p, client, asked, answer)
	if len(waits) == 0 {
		return nil
	}
	return g.admit(client, func(ctx context.Context) { g.wait(ctx, waits) })
}

// holdUnknown is Hold before the first Update, and without sets. In the first moments of a process, which
// end with HoldLimit, an answer with records waits until it is known whether a set has its names.
func (g *Gate) holdUnknown(client netip.Addr, asked, answer []byte) (wait func(context.Context)) {
	select {
	case <-g.known:
		return nil
	default:
	}
	left := time.Until(g.patience)
	if records := dnswire.NewAnswerReader(answer); left <= 0 || !records.Next() {
		return nil
	}
	asked, answer = bytes.Clone(asked), bytes.Clone(answer)
	return g.admit(client, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, g.cfg.HoldLimit)
		defer cancel()
		select {
		case <-g.known:
			g.wait(ctx, g.resolve(g.patterns.Load(), client, asked, answer))
		case <-time.After(left):
		case <-g.ended:
		case <-ctx.Done():
		}
	})
}

// admit returns wait, which takes one of the places of answers that wait; nil without one.
func (g *Gate) admit(client netip.Addr, wait func(context.Context)) func(context.Context) {
	select {
	case <-g.ended:
		return nil
	default:
	}
	place, err := g.held.TryEnter(client, nil)
	if err != nil {
		return nil // accounted
	}
	g.counters.held.Add(1)
	return func(ctx context.Context) {
		defer place.Leave()
		wait(ctx)
	}
}

// resolve reads an answer that may be of names in sets, and returns what it has to wait for.
func (g *Gate) resolve(p *patterns, client netip.Addr, asked, answer []byte) (waits []change) {
	namespace := g.cfg.Namespace(client)
	if _, ok := p.namespaces[namespace]; !ok {
		return nil
	}
	r := g.resolutions.Get().(*resolution)
	defer g.resolutions.Put(r)
	if !p.resolve(r, asked, answer) {
		return nil
	}
	return g.insert(namespace, r)
}

// insert notes the addresses of an answer to a Pod of a Namespace, and queues the names that the kernel has to
// be given. It returns those that the answer has to wait for.
func (g *Gate) insert(namespace string, r *resolution) (waits []change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, at := g.patterns.Load(), g.table.now()
	in := g.table.namespaces[namespace]
	if in == nil {
		return nil // the sets changed since the answer was read
	}
	for _, wire := range r.names() {
		n, number, isNew := g.table.note(p, in, wire, r.addresses, at)
		if isNew {
			g.enqueue(n, now)
		}
		if number > 0 {
			waits = append(waits, change{n, number})
		}
	}
	g.wakeToRemove()
	return waits
}

// change is a change of a name's addresses.
type change struct {
	name   *name
	number uint64
}

// wait waits until the kernel has the changes, or HoldLimit has passed.
func (g *Gate) wait(ctx context.Context, waits []change) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.HoldLimit)
	defer cancel()
	for _, c := range waits {
		for {
			done := g.done(c)
			if done == nil {
				break
			}
			select {
			case <-done:
			case <-g.ended:
				return
			case <-ctx.Done():
				g.counters.late.Add(1)
				return
			}
		}
	}
}

// done returns nil if the kernel has a change, or else what is closed when it has more
// changes of the name.
func (g *Gate) done(c change) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.name.programmed >= c.number {
		return nil
	}
	return c.name.progress()
}

// counters count since the start.
type counters struct {
	held, late, transactions, added, failed atomic.Uint64
}

// Stats are the figures of a Gate. The counters are since the start.
type Stats struct {
	// Names and Elements are those known now; both count for each Namespace and name that has them.
	Names, Elements int
	// Held are the answers that waited, and Late those of them that left before all
	// their addresses were in the kernel.
	Held, Late uint64
	// Transactions are the calls of the Programmer, Added the elements in those that
	// succeeded, and Failed those that failed.
	Transactions, Added, Failed uint64
	// Overflows are the addresses that were not added, by the limit: "name", "set", "namespace" or "all". Evicted
	// are those that were removed so that others had room.
	Overflows map[string]uint64
	Evicted   uint64
	// Unroutable are addresses that no set is given: loopback, link-local, multicast.
	Unroutable uint64
}

// Stats returns the present figures.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{
		Elements: g.table.used,
		Held:     g.counters.held.Load(), Late: g.counters.late.Load(),
		Transactions: g.counters.transactions.Load(), Added: g.counters.added.Load(), Failed: g.counters.failed.Load(),
		Overflows: make(map[string]uint64, limits), Evicted: g.table.evicted, Unroutable: g.table.unroutable,
	}
	for _, ns := range g.table.namespaces {
		s.Names += len(ns.names)
	}
	for l, n := range g.table.overflows {
		s.Overflows[limitNames[l]] = n
	}
	return s
}
