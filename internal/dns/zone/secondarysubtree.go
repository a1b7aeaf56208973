package zone

import (
	"fmt"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// subtree builds the subtree at base: the data in before and the hosts, with
// the names of runs replaced.
func (u *secondaryUpdate) subtree(
	base dnsname.Name,
	before *Subtree,
	hosts *hosts,
	runs []nameRecords,
) (*Subtree, error) {
	s := subtreeUpdate{secondaryUpdate: u, base: base, replaced: make(map[string]bool, len(runs))}
	u.build.Begin(base, 0)
	if before != nil {
		u.build.Metadata = *before.metadata
	}
	for i := range runs {
		s.replaced[string(s.labels(runs[i].name))] = true
	}
	s.keepNames(before)
	if !u.replace {
		s.keepHosts(hosts)
	}
	for i := range runs {
		if err := s.addRun(&runs[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", runs[i].name, err)
		}
	}
	if s.mixedTTL {
		return nil, fmt.Errorf("hosts below %s have different TTLs: %w", base, ErrTransferRecord)
	}
	u.build.ttl = s.ttl
	u.build.Metadata.Stale = nil
	if base == u.zone.apex.name {
		u.build.Metadata.Stale = u.stale
	}
	return u.build.Subtree(), nil
}

// subtreeUpdate is a subtree under construction.
type subtreeUpdate struct {
	*secondaryUpdate
	base     dnsname.Name
	replaced map[string]bool // names, as labels below the base
	ttl      uint32          // of hosts
	hasTTL   bool            // ttl is set
	mixedTTL bool            // TTLs of hosts differ
}

// labels returns the labels of a name below the base, in wire form.
func (s *subtreeUpdate) labels(name dnsname.Name) []byte {
	return []byte(name.WireLabels()[:name.WireLen()-s.base.WireLen()])
}

func (s *subtreeUpdate) add(t dnswire.Type, ttl uint32, rdata, labels []byte) {
	s.build.addRecord(record{labels: s.build.copyOctets(labels), typ: t, ttl: ttl, rdata: rdata})
}

func (s *subtreeUpdate) addHost(addr netip.Addr, ttl uint32) {
	s.mixedTTL = s.mixedTTL || s.hasTTL && s.ttl != ttl
	s.ttl, s.hasTTL = ttl, true
	s.build.AddHost(addr)
}

// keepNames copies the names of t that are not replaced.
func (s *subtreeUpdate) keepNames(t *Subtree) {
	if t == nil {
		return
	}
	for i := range int(t.names) {
		labels, offsets := t.name(i)
		if s.replaced[string(labels)] {
			continue
		}
		for _, set := range t.sets(offsets) {
			for _, rdata := range set.RData() {
				s.add(set.Type, set.TTL(), rdata, labels)
			}
		}
	}
	for addr := range t.hosts {
		if !s.replaced[string(appendHostLabel(nil, addr))] {
			s.addHost(addr, t.ttl)
		}
	}
}

// keepHosts copies the hosts that are not replaced.
func (s *subtreeUpdate) keepHosts(h *hosts) {
	if h == nil {
		return
	}
	for addr, ttls := range h.ttls.all {
		if !s.replaced[string(appendHostLabel(nil, addr))] {
			s.addHost(addr, uint32(ttls[0]))
		}
	}
}

// addRun adds the records of r.
func (s *subtreeUpdate) addRun(r *nameRecords) error {
	labels := s.labels(r.name)
	if len(labels) == 0 {
		s.build.Metadata = Metadata{}
	}
	if addr, ok := r.host(); ok && len(r.records) > 0 && r.name.Parent() == s.base {
		s.addHost(addr, r.records[0].TTL)
		return nil
	}
	for i := range r.records {
		it := &r.records[i]
		if it.Type != TypeMetadata {
			s.add(it.Type, it.TTL, it.RData, labels)
			continue
		}
		var err error
		if s.build.Metadata, err = s.metadataOf(it.RData); err != nil {
			return err
		}
	}
	return nil
}
