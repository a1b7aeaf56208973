package localzone

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/follow"
)

// MaxRecords is the highest number of records in one zone. It fits the memory limit
// that deploy ships, and bounds what $GENERATE makes of a few lines.
const MaxRecords = 100_000

// MaxOctets is the highest number of octets of all zones together, as records have them
// in messages, without compression. It bounds large records as MaxRecords bounds many.
const MaxOctets = 32 << 20

// content is a zone as a source describes it. It is immutable.
type content struct {
	version  follow.Version
	soa      dnswire.SOA
	subtrees map[dnsname.Name]*zone.Subtree
	records  int
	octets   int // of its records
	warnings []string
}

// size returns the number of octets of the records; nil has none.
func (c *content) size() int {
	if c == nil {
		return 0
	}
	return c.octets
}

// change adds to changes what makes before, which may be nil, to c.
func (c *content) change(changes *zone.Changes, before *content) {
	for base, t := range c.subtrees {
		changes.Subtrees = append(changes.Subtrees, zone.Change{Base: base, Subtree: t})
	}
	if before != nil {
		for base := range before.subtrees {
			if c.subtrees[base] == nil {
				changes.Subtrees = append(changes.Subtrees, zone.Change{Base: base})
			}
		}
	}
	if c.subtrees[c.soa.Zone] == nil { // an apex without records; that of a zone not loaded has a mark
		changes.Subtrees = append(changes.Subtrees, zone.Change{Base: c.soa.Zone})
	}
	changes.SOAs = append(changes.SOAs, c.soa)
}

// parse reads the records of a source whose zone may have that many octets. The errors
// of a record are *dnswire.MasterError.
func (c *Config) parse(s Source, from io.Reader, maxOctets int) (*content, error) {
	p := parser{apex: s.Apex, sets: make(map[dnsname.Name][]*rrset), maxOctets: maxOctets}
	for _, z := range c.Inner {
		if z != s.Apex && z.IsSubdomainOf(s.Apex) {
			p.inner = append(p.inner, z)
		}
	}
	if err := dnswire.ReadMaster(from, s.Apex, s.TTL, p.add); err != nil {
		return nil, err
	}
	switch {
	case p.soa != nil:
	case s.File != "":
		return nil, fmt.Errorf("%s: no SOA record of %s", s.File, s.Apex)
	default:
		p.soa = new(c.SOA)
		p.soa.Zone = s.Apex
	}
	subtrees, err := p.arrange()
	if err != nil {
		return nil, err
	}
	return &content{
		soa: *p.soa, subtrees: subtrees, records: p.records, octets: p.octets, warnings: p.unanswerable(s),
	}, nil
}

// parser collects the records of a zone.
type parser struct {
	apex    dnsname.Name
	inner   []dnsname.Name
	soa     *dnswire.SOA
	sets    map[dnsname.Name][]*rrset
	records int

	octets, maxOctets int
}

// rrset is the records of one name and type.
type rrset struct {
	typ   dnswire.Type
	ttl   uint32 // the lowest (RFC 2181, section 5.2)
	rdata [][]byte
	line  int // of the first record
}

var (
	errManySOA      = errors.New("a second SOA record")
	errSOAPlace     = errors.New("a SOA record below the zone's apex")
	errMany         = fmt.Errorf("more than %d records", MaxRecords)
	errLarge        = fmt.Errorf("the records of all zones have more than %d MiB", MaxOctets>>20)
	errAlias        = errors.New("a CNAME record beside other records")
	errManyAliases  = errors.New("a second CNAME record")
	errWildcardNS   = errors.New("a wildcard cannot be delegated")
	errBelowCut     = errors.New("the name is delegated; only NS, DS, A and AAAA records can be here")
	errUnderCut     = errors.New("a name above it is delegated; only A and AAAA records of its name servers can be here")
	errPseudoRecord = errors.New("not a type that a zone can hold")
)

// add adds one record.
func (p *parser) add(r *dnswire.MasterRecord) error {
	if p.records++; p.records > MaxRecords {
		return errMany
	}
	const fixed = 10 // type, class, TTL, length
	if p.octets += len(r.Name.WireLabels()) + 1 + fixed + len(r.RData); p.octets > p.maxOctets {
		return errLarge
	}
	wrong := func(err error) error { return fmt.Errorf("%s %s: %w", r.Name, r.Type, err) }
	switch {
	case !r.Name.IsSubdomainOf(p.apex):
		return fmt.Errorf("%s is not in the zone %s", r.Name, p.apex)
	case slices.ContainsFunc(p.inner, r.Name.IsSubdomainOf):
		return nil
	case r.Type == dnswire.TypeSOA:
		return p.addSOA(r)
	case r.Type == dnswire.TypeNS && r.Name.Label() == "*":
		return wrong(errWildcardNS)
	case !r.Type.IsData():
		return wrong(errPseudoRecord)
	}
	sets := p.sets[r.Name]
	i := slices.IndexFunc(sets, func(s *rrset) bool { return s.typ == r.Type })
	switch {
	case r.Type == dnswire.TypeCNAME && i >= 0 && string(sets[i].rdata[0]) != string(r.RData):
		return wrong(errManyAliases)
	case r.Type == dnswire.TypeCNAME && (r.Name == p.apex || len(sets) > 1 || len(sets) == 1 && i < 0):
		return wrong(errAlias)
	case len(sets) > 0 && sets[0].typ == dnswire.TypeCNAME && i < 0:
		return wrong(errAlias)
	case i < 0:
		p.sets[r.Name] = append(sets, &rrset{r.Type, r.TTL, [][]byte{r.RData}, r.Line})
	default:
		sets[i].ttl, sets[i].rdata = min(sets[i].ttl, r.TTL), append(sets[i].rdata, r.RData)
	}
	return nil
}

func (p *parser) addSOA(r *dnswire.MasterRecord) error {
	soa, ok := dnswire.ParseSOA(r.Name, r.TTL, r.RData)
	switch {
	case r.Name != p.apex:
		return fmt.Errorf("%s: %w", r.Name, errSOAPlace)
	case p.soa != nil:
		return errManySOA
	case !ok:
		return fmt.Errorf("%s: a malformed SOA record", r.Name)
	}
	p.soa = &soa
	return nil
}

// arrange makes the subtrees: one for each name, except that a delegated name has the
// names below it in its own.
func (p *parser) arrange() (map[dnsname.Name]*zone.Subtree, error) {
	bases := make(map[dnsname.Name][]dnsname.Name) // the names in each subtree
	byLine := func(a, b dnsname.Name) int { return p.sets[a][0].line - p.sets[b][0].line }
	for _, name := range slices.SortedFunc(maps.Keys(p.sets), byLine) { // for the first error
		sets := p.sets[name]
		base := p.cutAt(name)
		if err := checkCut(name, base, sets, base != name || name != p.apex && hasNS(sets)); err != nil {
			return nil, err
		}
		bases[base] = append(bases[base], name)
	}
	subtrees := make(map[dnsname.Name]*zone.Subtree, len(bases))
	var b zone.Builder
	for base, names := range bases {
		b.Begin(base, 0)
		for _, name := range names {
			for _, s := range p.sets[name] {
				b.AddSet(s.typ, s.ttl, name, s.rdata...)
			}
		}
		subtrees[base] = b.Subtree()
	}
	return subtrees, nil
}

// unanswerable returns warnings of the RRsets that fit into no message (RFC 1035, section
// 4.2.2), by line.
func (p *parser) unanswerable(s Source) (warnings []string) {
	at := func(line int) string { return fmt.Sprintf("%s:%d", s.File, line) }
	if s.File == "" {
		at = func(line int) string { return fmt.Sprintf("zone %s: line %d", s.Apex, line) }
	}
	lines := make(map[int]string)
	for name, sets := range p.sets {
		for _, set := range sets {
			if size := set.messageSize(name); size > dnswire.MaxMessage {
				lines[set.line] = fmt.Sprintf(
					"%s: %s %s: the response with these records has %d octets, and a message at most %d: no client gets them",
					at(set.line), name, set.typ, size, dnswire.MaxMessage,
				)
			}
		}
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		warnings = append(warnings, lines[line])
	}
	return warnings
}

// messageSize returns the size of the smallest response with the records of a name, in
// octets. Equal records count once.
func (s *rrset) messageSize(name dnsname.Name) int {
	const question, record = 4, 12 // type and class; pointer to the name, type, class, TTL, length
	size := dnswire.HeaderLen + name.WireLen() + question
	for _, rdata := range s.rdata {
		size += record + len(rdata)
	}
	if size <= dnswire.MaxMessage {
		return size
	}
	seen := make(map[string]bool)
	for _, rdata := range s.rdata {
		if seen[string(rdata)] {
			size -= record + len(rdata)
		}
		seen[string(rdata)] = true
	}
	return size
}

// cutAt returns the highest delegated name at or above name, or name.
func (p *parser) cutAt(name dnsname.Name) (cut dnsname.Name) {
	cut = name
	for at := name; at != p.apex; at = at.Parent() {
		if hasNS(p.sets[at]) {
			cut = at
		}
	}
	return cut
}

func hasNS(sets []*rrset) bool {
	return slices.ContainsFunc(sets, func(s *rrset) bool { return s.typ == dnswire.TypeNS })
}

// checkCut checks the records at a name that is delegated, or below one that is.
func checkCut(name, cut dnsname.Name, sets []*rrset, delegated bool) error {
	if !delegated {
		return nil
	}
	for _, s := range sets {
		switch s.typ {
		case dnswire.TypeA, dnswire.TypeAAAA:
			continue
		case dnswire.TypeNS, dnswire.TypeDS:
			if name == cut {
				continue
			}
		}
		reason := errBelowCut
		if name != cut {
			reason = errUnderCut
		}
		return &dnswire.MasterError{Line: s.line, Err: fmt.Errorf("%s %s: %w", name, s.typ, reason)}
	}
	return nil
}
