// Package alloc allocates cluster IPs, IP families and node ports to Services as the
// Kubernetes API server does.
//
// It implements the pages "Service ClusterIP allocation" and "IPv4/IPv6 dual-stack" and
// the section "type: NodePort" of the page Service. Where these are silent, and for the
// texts of refusals, it follows kube-apiserver v1.36 (packages registry/core/service and
// apis/core/validation). Manifests are applied as "kubectl apply" applies them: a field
// that neither this manifest nor the previous one sets retains the value allocated
// earlier.
//
// The allocator validates only what concerns addresses and node ports. The model does not
// distinguish clusterIP from clusterIPs, nor allocateLoadBalancerNodePorts: true from an
// unset field, so the allocator does not validate these.
package alloc

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Config configures an Allocator.
type Config struct {
	// Ranges are the ranges of cluster IPs: one, or two of different families. A Service
	// that sets no family gets the family of the first range.
	Ranges []netip.Prefix
	// NodePorts is the range of node ports; the zero value means 30000-32767.
	NodePorts Ports
}

// Limits of a range of cluster IPs (kube-apiserver: ServiceIPRange and NewIPAllocator).
// kube-apiserver applies the first limit to the first range only; here it applies to
// both.
const (
	minRangeSize = 8
	minIPv6Bits  = 64 // length of an IPv6 prefix
)

// Allocator allocates addresses and node ports and records which Service holds them. It
// is not safe for concurrent use.
type Allocator struct {
	families  []cluster.AddressType // of the ranges, in the order of Config.Ranges
	ranges    map[cluster.AddressType]*addressRange
	nodePorts Ports
	ports     *pool
	services  map[cluster.Key]*service
	// started is set by the first call of Complete.
	started bool
	// freed counts the addresses and node ports released so far.
	freed int
}

type addressRange struct {
	Bands
	*pool
}

// service is the state of one Service.
type service struct {
	// declared is the Service as currently declared. accepted is the declaration that was
	// last allocated for; it is nil for a recalled Service.
	declared, accepted *cluster.Service
	// held is the Service with its allocations; nil if no declaration was ever accepted.
	held *cluster.Service
	// problems are the reasons why the current declaration is refused; empty if it was
	// accepted.
	problems problems
}

// New returns an Allocator without allocations. It returns an error if kube-apiserver
// would reject the ranges.
func New(c Config) (*Allocator, error) {
	if c.NodePorts == (Ports{}) {
		c.NodePorts = Ports{firstNodePort, lastNodePort}
	}
	if c.NodePorts.First == 0 || c.NodePorts.First > c.NodePorts.Last {
		return nil, fmt.Errorf(
			"node ports %s: must be from 1 to 65535, and the first must not be greater than the last", c.NodePorts,
		)
	}
	if len(c.Ranges) < 1 || len(c.Ranges) > 2 {
		return nil, fmt.Errorf(
			"ranges of cluster IPs: got %d, want one, or two of different families", len(c.Ranges),
		)
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
		b := SplitRange(r)
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
	case r.Addr().Is6() && r.Bits() < minIPv6Bits:
		return fmt.Errorf("shortest allowed prefix length for service CIDR is %d, got %d", minIPv6Bits, r.Bits())
	case hostBits < 64 && 1<<hostBits < minRangeSize:
		return fmt.Errorf("the service cluster IP range must be at least %d IP addresses", minRangeSize)
	}
	return nil
}

// Recall reserves the addresses and node ports that Services of a snapshot hold. It must
// be called before the first Complete. It skips Services whose allocations are outside
// the configured ranges or conflict with one another.
func (a *Allocator) Recall(v *cluster.View) {
	all := slices.Collect(v.Services())
	slices.SortFunc(all, func(x, y *cluster.Service) int { return x.Compare(y.Key) })
	for _, s := range all {
		f := fieldsOf(s)
		if f.typ != cluster.ExternalName && len(f.families) == 0 || f.needsAddresses() && len(f.ips) != len(f.families) {
			continue // nothing was allocated to it
		}
		d := &draft{key: s.Key, fields: f}
		if p := a.claimHeld(d); len(p) > 0 {
			d.releaseClaims()
			continue
		}
		a.services[s.Key] = &service{declared: s, held: s}
	}
}

// Complete allocates addresses and node ports to the Services that the transaction
// changes, and to those refused before. It returns the refusals that are in effect,
// sorted by key; a Service has one for each problem. A new Service that is refused is
// deleted from the transaction; a changed Service that is refused remains as it was.
// Complete must be called once per transaction, after all changes.
func (a *Allocator) Complete(tx *cluster.Tx) []cluster.Refusal {
	for pending := a.pending(tx); len(pending) > 0; {
		freed := a.freed
		left := a.allocate(tx, pending)
		if a.freed == freed || len(left) == len(pending) {
			break
		}
		pending = left
	}
	return a.refusals()
}

// pending records the declarations of the transaction and returns the keys of the
// Services to allocate for.
func (a *Allocator) pending(tx *cluster.Tx) (keys []cluster.Key) {
	requested := cluster.Services.Requested(tx)
	if changes := tx.Changed(); !a.started || changes.Everything {
		a.started = true
		requested = a.allServices(tx, requested)
	}
	for key, s := range requested {
		known := a.services[key]
		switch {
		case s == nil && known != nil:
			a.remove(key, known)
		case s == nil, known != nil && s == known.held && len(known.problems) == 0:
			// Unchanged.
		case known == nil:
			a.services[key] = &service{declared: s}
			keys = append(keys, key)
		default:
			known.declared = s
			keys = append(keys, key)
		}
	}
	for key, s := range a.services {
		if _, ok := requested[key]; !ok && len(s.problems) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// allServices returns the Services requested by the transaction and all others of the
// model. A nil Service means that it was deleted.
func (a *Allocator) allServices(
	tx *cluster.Tx, requested map[cluster.Key]*cluster.Service,
) map[cluster.Key]*cluster.Service {
	all := make(map[cluster.Key]*cluster.Service, len(requested))
	for s := range tx.Services() {
		all[s.Key] = s
	}
	for key, s := range a.services {
		if s.held != nil && all[key] == nil {
			all[key] = nil
		}
	}
	maps.Copy(all, requested)
	return all
}

// remove releases what a deleted Service holds and removes its state.
func (a *Allocator) remove(key cluster.Key, s *service) {
	if s.held != nil {
		a.releaseAll(fieldsOf(s.held), fields{})
	}
	delete(a.services, key)
}

// allocate processes the Services at the keys and returns the keys of those it refused.
// It claims all requested addresses and node ports before it chooses any, so that it
// never chooses one that another Service requests.
func (a *Allocator) allocate(tx *cluster.Tx, keys []cluster.Key) (refused []cluster.Key) {
	a.sort(keys)
	var incomplete []*draft
	for progress := true; progress; {
		freed := a.freed
		refused = nil
		for _, key := range keys {
			s := a.services[key]
			d := draftOf(key, s)
			if p := a.prepare(d); len(p) > 0 {
				d.releaseClaims()
				a.refuse(tx, key, p)
				refused = append(refused, key)
			} else if d.incomplete() {
				incomplete = append(incomplete, d)
			} else {
				a.accept(tx, d)
			}
		}
		progress = a.freed != freed && len(refused) > 0
		keys = refused
	}
	slices.SortFunc(incomplete, func(x, y *draft) int { return x.key.Compare(y.key) })
	for _, d := range incomplete {
		if p := a.allocateMissing(d); len(p) > 0 {
			a.freed += d.releaseClaims()
			a.refuse(tx, d.key, p)
			refused = append(refused, d.key)
			continue
		}
		a.accept(tx, d)
	}
	return refused
}

// sort orders Services that hold allocations before those that do not, then by key.
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

// accept puts the Service of a complete draft into the transaction and releases what the
// Service no longer holds.
func (a *Allocator) accept(tx *cluster.Tx, d *draft) {
	s := a.services[d.key]
	if s.held != nil {
		a.releaseAll(d.was, d.fields)
	}
	tx.Put(d.service())
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
			all = append(all, cluster.Refusal{Kind: cluster.KindService, Key: key, Field: p.field, Err: errors.New(p.message)})
		}
	}
	slices.SortStableFunc(all, func(x, y cluster.Refusal) int { return x.Key.Compare(y.Key) })
	return all
}
