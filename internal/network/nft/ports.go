package nft

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Protocol is the number of a transport protocol (IANA, Protocol Numbers).
type Protocol uint8

// The protocols of ports.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the protocol's name in the API.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// Port is a port of the node that leads to a Pod. A Pod with addresses of both families has one of each.
type Port struct {
	Protocol Protocol
	// HostIP is the node's address, of To's family; the zero Addr and the unspecified address are all of them.
	HostIP   netip.Addr
	HostPort uint16
	To       netip.AddrPort
}

// String returns it as in "TCP 192.0.2.1:80".
func (p Port) String() string {
	if !p.HostIP.IsValid() {
		return fmt.Sprintf("%s %d", p.Protocol, p.HostPort)
	}
	return fmt.Sprintf("%s %s", p.Protocol, netip.AddrPortFrom(p.HostIP, p.HostPort))
}

// ConflictError is that another Pod has a port.
type ConflictError struct {
	Port  Port
	Owner string
}

// Error names the port and who has it.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("hostPort %s is that of %s", e.Port, e.Owner)
}

// portKey is what two ports must have in common to exclude one another.
type portKey struct {
	is4      bool
	protocol Protocol
	port     uint16
}

func (p Port) key() portKey { return portKey{p.To.Addr().Is4(), p.Protocol, p.HostPort} }

// ports are those of all owners.
type ports struct {
	owners  map[string][]Port
	holders map[portKey]map[string][]Port
}

func newPorts() *ports {
	return &ports{make(map[string][]Port), make(map[portKey]map[string][]Port)}
}

// normal returns valid ports, sorted.
func normal(all []Port) ([]Port, error) {
	made := slices.Clone(all)
	for i := range made {
		p := &made[i]
		if p.HostIP.IsValid() && p.HostIP.IsUnspecified() {
			p.HostIP = netip.Addr{}
		}
		to := p.To.Addr()
		switch {
		case p.HostPort == 0 || p.To.Port() == 0 || !to.IsValid() || to.Is4In6():
			return nil, fmt.Errorf("hostPort %s to %s: invalid", *p, p.To)
		case p.HostIP.IsValid() && p.HostIP.Is4() != to.Is4():
			return nil, fmt.Errorf("hostPort %s to %s: of another family", *p, p.To)
		}
	}
	slices.SortFunc(made, func(a, b Port) int {
		return cmp.Or(
			cmp.Compare(a.Protocol, b.Protocol), a.HostIP.Compare(b.HostIP), cmp.Compare(a.HostPort, b.HostPort),
			a.To.Compare(b.To),
		)
	})
	return slices.Compact(made), nil
}

// check returns an error if another owner, or another port of the same, has one of the ports.
func (s *ports) check(owner string, all []Port) error {
	own := make(map[portKey][]Port)
	for _, p := range all {
		for _, other := range slices.Sorted(maps.Keys(s.holders[p.key()])) {
			if other != owner && slices.ContainsFunc(s.holders[p.key()][other], p.excludes) {
				return &ConflictError{p, other}
			}
		}
		if slices.ContainsFunc(own[p.key()], p.excludes) {
			return &ConflictError{p, "another container of the same Pod"}
		}
		own[p.key()] = append(own[p.key()], p)
	}
	return nil
}

// excludes reports whether a port of the same key is at the same address: one is at all, or both are at one.
func (p Port) excludes(o Port) bool {
	return !p.HostIP.IsValid() || !o.HostIP.IsValid() || p.HostIP == o.HostIP
}

// put replaces the ports of an owner.
func (s *ports) put(owner string, all []Port) {
	for _, p := range s.owners[owner] {
		k := p.key()
		if delete(s.holders[k], owner); len(s.holders[k]) == 0 {
			delete(s.holders, k)
		}
	}
	delete(s.owners, owner)
	if len(all) == 0 {
		return
	}
	s.owners[owner] = all
	for _, p := range all {
		k := p.key()
		if s.holders[k] == nil {
			s.holders[k] = make(map[string][]Port)
		}
		s.holders[k][owner] = append(s.holders[k][owner], p)
	}
}

// Owner is a Pod with its ports.
type Owner struct {
	Name  string
	Ports []Port
}

// restore replaces the ports of all owners. Of two that have one port, the owner keeps its ports for which the kernel
// has them; if that is neither, the first one. The ports of the other are left out, and are in the error.
func (s *ports) restore(owners []Owner, kernel map[element]bool) error {
	*s = *newPorts()
	var failed []error
	var held, others []Owner
	for _, o := range owners {
		all, err := normal(o.Ports)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", o.Name, err))
			continue
		}
		if o.Ports = all; isSubset(portElements(all), kernel) {
			held = append(held, o)
		} else {
			others = append(others, o)
		}
	}
	for _, o := range append(held, others...) {
		if err := s.check(o.Name, o.Ports); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", o.Name, err))
			continue
		}
		s.put(o.Name, o.Ports)
	}
	return errors.Join(failed...)
}

func isSubset(all, of map[element]bool) bool {
	for e := range all {
		if !of[e] {
			return false
		}
	}
	return true
}
