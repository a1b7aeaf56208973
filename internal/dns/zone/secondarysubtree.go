package zone

import (
	"fmt"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// subtree makes the subtree at base: what is there before, with hosts that came
// one by one, but at the names of runs what those say.
func (u *updating) subtree(base dnsname.Name, before *Subtree, hosts *hosts, runs []run) (*Subtree, error) {
	s := subtreeOf{updating: u, base: base, replaced: make(map[string]bool, len(runs))}
	u.build.Begin(base, 0)
	if before != nil {
		u.build.Metadata = *before.marks
	}
	for i := range runs {
		s.replaced[string(s.labels(runs[i].name))] = true
	}
	s.keep(before)
	if !u.whole {
		s.keepHosts(hosts)
	}
	for i := range runs {
		if err := s.take(&runs[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", runs[i].name, err)
		}
	}
	if s.mixed {
		return nil, fmt.Errorf("records at and below %s have several TTLs: %w", base, ErrTransferRecord)
	}
	u.build.ttl = s.ttl
	u.build.Metadata.Stale = nil
	if base == u.zone.apex.name {
		u.build.Metadata.Stale = u.aged
	}
	return u.build.Subtree(), nil
}

// subtreeOf is a subtree in the making.
type subtreeOf struct {
	*updating
	base     dnsname.Name
	replaced map[string]bool // names, as labels below the base
	ttl      uint32
	some     bool // there is a record, and so a TTL
	mixed    bool // TTLs differ
}

// labels are those of a name below the base, in wire form.
func (s *subtreeOf) labels(name dnsname.Name) []byte {
	return []byte(name.WireLabels()[:name.WireLen()-s.base.WireLen()])
}

func (s *subtreeOf) add(t dnswire.Type, ttl uint32, rdata, labels []byte) {
	s.mixed = s.mixed || s.some && s.ttl != ttl
	s.ttl, s.some = ttl, true
	s.build.addRecord(t, rdata, s.build.keep(labels))
}

func (s *subtreeOf) addHost(addr netip.Addr, ttl uint32) {
	s.mixed = s.mixed || s.some && s.ttl != ttl
	s.ttl, s.some = ttl, true
	s.build.AddHost(addr)
}

// keep keeps what t has at names that are not replaced.
func (s *subtreeOf) keep(t *Subtree) {
	if t == nil {
		return
	}
	for i := range int(t.names) {
		labels, places := t.name(i)
		if s.replaced[string(labels)] {
			continue
		}
		for _, set := range t.sets(places) {
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

// keepHosts keeps hosts that came one by one.
func (s *subtreeOf) keepHosts(h *hosts) {
	if h == nil {
		return
	}
	for addr, ttls := range h.ttls.all {
		if !s.replaced[string(appendHostLabel(nil, addr))] {
			s.addHost(addr, uint32(ttls[0]))
		}
	}
}

// take adds what r says.
func (s *subtreeOf) take(r *run) error {
	labels := s.labels(r.name)
	if len(labels) == 0 {
		s.build.Metadata = Metadata{}
	}
	if addr, ok := r.host(); ok && len(r.items) > 0 && r.name.Parent() == s.base {
		s.addHost(addr, r.items[0].TTL)
		return nil
	}
	for i := range r.items {
		it := &r.items[i]
		if it.Type != TypeMetadata {
			s.add(it.Type, it.TTL, it.RData, labels)
			continue
		}
		var err error
		if s.build.Metadata, err = s.marksOf(it.RData); err != nil {
			return err
		}
	}
	return nil
}
