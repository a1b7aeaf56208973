// Package alloc gives Services their cluster IPs, IP families and node ports, as
// the Kubernetes API server does.
//
// It implements the pages "Service ClusterIP allocation", "IPv4/IPv6 dual-stack"
// and Service, "type: NodePort"; where they say less, and for the words of
// refusals, it follows kube-apiserver v1.36 (its packages registry/core/service
// and apis/core/validation). A manifest counts as "kubectl apply" has it count:
// what it does not give, and did not give before, stays as it is held.
//
// Of validation there is what bears on addresses and node ports. The model does
// not tell clusterIP from clusterIPs, nor an allocateLoadBalancerNodePorts of true
// from none, so nothing is refused for these.
package alloc

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Config is what there is to give out.
type Config struct {
	// Ranges are those of cluster IPs: one, or two of different families. Services
	// that don't say have the family of the first.
	Ranges []netip.Prefix
	// NodePorts are 30000-32767 when zero.
	NodePorts Ports
}

// The limits of a range (kube-apiserver: ServiceIPRange and NewIPAllocator). It
// has the first limit for the first range only, though no other is of use.
const (
	leastRange   = 8
	longestRange = 64 // bits of an IPv6 prefix
)

// Allocator gives out, and remembers what it gave out. Its methods must not be
// called at once.
type Allocator struct {
	families  []cluster.AddressType // of the ranges, in their order
	ranges    map[cluster.AddressType]*addressRange
	nodePorts Ports
	ports     *pool
	services  map[cluster.Key]*service
	// begun is set once a transaction was completed.
	begun bool
	// freed counts what was given back.
	freed int
}

type addressRange struct {
	Band
	*pool
}

// service is what is known of a Service.
type service struct {
	// declared is how it is declared now, and accepted how it was when it was last
	// filled in; nil when it was recalled.
	declared, accepted *cluster.Service
	// held is how it was last filled in; nil when it was refused from the start.
	held *cluster.Service
	// problems are why it is refused as it is declared; none when it is not.
	problems problems
}

// New makes an Allocator that gave nothing out yet. It is an error when the
// ranges are not what an API server would take.
func New(c Config) (*Allocator, error) {
	if c.NodePorts == (Ports{}) {
		c.NodePorts = Ports{firstNodePort, lastNodePort}
	}
	if c.NodePorts.First == 0 || c.NodePorts.First > c.NodePorts.Last {
		return nil, fmt.Errorf("node ports %s: must be from 1 to 65535, and the first not behind the last", c.NodePorts)
	}
	if len(c.Ranges) < 1 || len(c.Ranges) > 2 {
		return nil, fmt.Errorf("ranges of cluster IPs: there are %d, and must be one, or two of different families", len(c.Ranges))
	}
	a := &Allocator{
		ranges:    make(map[cluster.AddressType]*addressRange),
		nodePorts: c.NodePorts,
		ports:     newPool(c.NodePorts.size(), uint64(c.NodePorts.Offset())),
		services:  make(map[cluster.Key]*service),
	}
	for _, r := range c.Ranges {
		if err := checkRange(r); err != nil {
			return nil, fmt.Errorf("range of cluster IPs %s: %w", r, err)
		}
		family := cluster.FamilyOf(r.Addr())
		if a.ranges[family] != nil {
			return nil, fmt.Errorf("range of cluster IPs %s: the two must be of different families", r)
		}
		b := BandOf(r)
		a.families = append(a.families, family)
		a.ranges[family] = &addressRange{b, newPool(b.Size, b.Offset)}
	}
	return a, nil
}

func checkRange(r netip.Prefix) error {
	hostBits := r.Addr().BitLen() - r.Bits()
	switch {
	case !r.IsValid() || r.Addr().Is4In6():
		return errors.New("must be an IPv4 or IPv6 prefix")
	case r.Addr().Is6() && r.Bits() < longestRange:
		return fmt.Errorf("shortest allowed prefix length for service CIDR is %d, got %d", longestRange, r.Bits())
	case hostBits < 64 && 1<<hostBits < leastRange:
		return fmt.Errorf("the service cluster IP range must be at least %d IP addresses", leastRange)
	}
	return nil
}

// Recall takes over what Services hold that an Allocator filled in before, as
// they are in a snapshot. It must come before the first Complete. A Service that
// holds what can't be given out (the ranges are others now) is not recalled.
func (a *Allocator) Recall(v *cluster.View) {
	all := slices.Collect(v.Services())
	slices.SortFunc(all, func(x, y *cluster.Service) int { return x.Compare(y.Key) })
	for _, s := range all {
		f := fieldsOf(s)
		if f.typ != cluster.ExternalName && len(f.families) == 0 || f.needsAddresses() && len(f.ips) != len(f.families) {
			continue // never filled in
		}
		d := &draft{key: s.Key, fields: f}
		if p := a.reclaim(d); len(p) > 0 {
			d.giveBack()
			continue
		}
		a.services[s.Key] = &service{declared: s, held: s}
	}
}

// Complete fills in the Services that the transaction was asked to hold, and
// those that were refused before, as far as they can be. It tells which are
// refused at present, by key, and why; more than once for what has several faults. One
// that is refused from the start is taken out of the transaction; one that is
// refused as it was changed stays as it was. Complete must be called once in a
// transaction, before its end.
func (a *Allocator) Complete(tx *cluster.Tx) []cluster.Refusal {
	for pending := a.pending(tx); len(pending) > 0; {
		freed := a.freed
		left := a.settle(tx, pending)
		if a.freed == freed || len(left) == len(pending) {
			break
		}
		pending = left
	}
	return a.refusals()
}

// pending takes in what is declared, and lists what is to be looked at.
func (a *Allocator) pending(tx *cluster.Tx) (keys []cluster.Key) {
	asked := cluster.Services.Requested(tx)
	if changes := tx.Changed(); !a.begun || changes.Everything {
		a.begun = true
		asked = a.everything(tx, asked)
	}
	for key, s := range asked {
		known := a.services[key]
		switch {
		case s == nil && known != nil:
			a.forget(key, known)
		case s == nil, known != nil && s == known.held && len(known.problems) == 0:
			// There is nothing to do.
		case known == nil:
			a.services[key] = &service{declared: s}
			keys = append(keys, key)
		default:
			known.declared = s
			keys = append(keys, key)
		}
	}
	for key, s := range a.services {
		if _, ok := asked[key]; !ok && len(s.problems) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// everything adds to what was asked for all that is there, and that it is not.
func (a *Allocator) everything(tx *cluster.Tx, asked map[cluster.Key]*cluster.Service) map[cluster.Key]*cluster.Service {
	all := make(map[cluster.Key]*cluster.Service, len(asked))
	for s := range tx.Services() {
		all[s.Key] = s
	}
	for key, s := range a.services {
		if s.held != nil && all[key] == nil {
			all[key] = nil
		}
	}
	maps.Copy(all, asked)
	return all
}

// forget takes back all that a Service holds that is no more.
func (a *Allocator) forget(key cluster.Key, s *service) {
	if s.held != nil {
		a.releaseAll(fieldsOf(s.held), fields{})
	}
	delete(a.services, key)
}

// settle tries the Services at the keys, and lists those that it refused. First
// all get what they ask for, so that nobody is given that by chance; then the rest
// is chosen.
func (a *Allocator) settle(tx *cluster.Tx, keys []cluster.Key) (refused []cluster.Key) {
	a.sort(keys)
	var waiting []*draft
	for progress := true; progress; {
		freed := a.freed
		refused = nil
		for _, key := range keys {
			s := a.services[key]
			d := draftOf(key, s)
			if p := a.prepare(d); len(p) > 0 {
				d.giveBack()
				a.refuse(tx, key, p)
				refused = append(refused, key)
			} else if d.lacks() {
				waiting = append(waiting, d)
			} else {
				a.accept(tx, d)
			}
		}
		progress = a.freed != freed && len(refused) > 0
		keys = refused
	}
	slices.SortFunc(waiting, func(x, y *draft) int { return x.key.Compare(y.key) })
	for _, d := range waiting {
		if p := a.choose(d); len(p) > 0 {
			a.freed += d.giveBack()
			a.refuse(tx, d.key, p)
			refused = append(refused, d.key)
			continue
		}
		a.accept(tx, d)
	}
	return refused
}

// sort puts who holds something before who does not, and orders them by key.
func (a *Allocator) sort(keys []cluster.Key) {
	slices.SortFunc(keys, func(x, y cluster.Key) int {
		xNew, yNew := a.services[x].held == nil, a.services[y].held == nil
		if xNew == yNew {
			return x.Compare(y)
		}
		if yNew {
			return -1
		}
		return 1
	})
}

// accept puts a draft that lacks nothing into the transaction, and takes back what
// it no longer holds.
func (a *Allocator) accept(tx *cluster.Tx, d *draft) {
	s := a.services[d.key]
	if s.held != nil {
		a.releaseAll(d.was, d.fields)
	}
	tx.Put(d.filled())
	*s = service{declared: s.declared, accepted: s.declared, held: tx.Service(d.key)}
}

func (a *Allocator) refuse(tx *cluster.Tx, key cluster.Key, p problems) {
	s := a.services[key]
	s.problems = p
	if s.held != nil {
		tx.Put(s.held)
		return
	}
	tx.Delete(cluster.KindService, key)
}

func (a *Allocator) refusals() (all []cluster.Refusal) {
	for key, s := range a.services {
		for _, p := range s.problems {
			all = append(all, cluster.Refusal{Kind: cluster.KindService, Key: key, Field: p.field, Err: errors.New(p.words)})
		}
	}
	slices.SortStableFunc(all, func(x, y cluster.Refusal) int { return x.Key.Compare(y.Key) })
	return all
}
