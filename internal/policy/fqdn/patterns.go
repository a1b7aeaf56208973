package fqdn

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Set is a set of kind ruleset.Resolved.
type Set struct {
	// Domains are its domain names in lower case without a dot at the end, or "*." and a name for all names
	// under it.
	Domains []string
	// Namespaces are those of the Pods whose rules name the set, sorted. It is filled from the answers to them.
	Namespaces []string
}

// patterns finds the sets that a name is in. It is immutable.
type patterns struct {
	exact      map[string][]*patternSet // sets by name, in wire form without the root's closing octet
	under      map[string][]*patternSet // sets by the name above
	sets       map[string]*patternSet
	namespaces map[string]struct{} // of all sets
	// The lengths of the keys: most names are told apart by these alone.
	exactLens, underLens lengths
}

// patternSet is a Set.
type patternSet struct {
	name       string
	domains    []domain
	namespaces map[string]struct{}
}

// domain is a domain name of a set.
type domain struct {
	wire       string // as the keys of patterns
	isWildcard bool
}

// lengths is a set of lengths of names.
type lengths [(dnsname.MaxWire + 64) / 64]uint64

func (l *lengths) add(n int)      { l[n/64] |= 1 << (n % 64) }
func (l *lengths) has(n int) bool { return l[n/64]&(1<<(n%64)) != 0 }

// wildcard begins patterns of all names under a name.
const wildcard = "*."

// compile prepares the domain names of sets. Those that are no names match nothing.
func compile(sets map[string]Set, log *slog.Logger) *patterns {
	p := &patterns{
		exact: make(map[string][]*patternSet), under: make(map[string][]*patternSet),
		sets: make(map[string]*patternSet, len(sets)), namespaces: make(map[string]struct{}),
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) { // match returns them in this order
		s := &patternSet{name: name, namespaces: make(map[string]struct{})}
		p.sets[name] = s
		for _, of := range sets[name].Namespaces {
			s.namespaces[of], p.namespaces[of] = struct{}{}, struct{}{}
		}
		for _, text := range sets[name].Domains {
			p.add(s, text, log)
		}
	}
	return p
}

// add adds a domain name of a set.
func (p *patterns) add(s *patternSet, text string, log *slog.Logger) {
	text, isWildcard := strings.CutPrefix(text, wildcard)
	name, err := dnsname.Parse(text)
	if err != nil {
		log.Warn("policy's domain name matches nothing", "set", s.name, "err", err)
		return
	}
	wire, into, lens := name.WireLabels(), p.exact, &p.exactLens
	if isWildcard {
		into, lens = p.under, &p.underLens
	}
	if some := into[wire]; len(some) > 0 && some[len(some)-1] == s {
		return
	}
	s.domains = append(s.domains, domain{wire, isWildcard})
	if len(s.namespaces) > 0 {
		into[wire] = append(into[wire], s)
		lens.add(len(wire))
	}
}

func (p *patterns) isEmpty() bool { return len(p.exact)+len(p.under) == 0 }

// matches reports whether a name is in any set. It allocates nothing.
func (p *patterns) matches(name []byte) bool {
	if p.exactLens.has(len(name)) && len(p.exact[string(name)]) > 0 {
		return true
	}
	for above := range parents(name) {
		if p.underLens.has(len(above)) && len(p.under[string(above)]) > 0 {
			return true
		}
	}
	return false
}

// match returns the sets of a Namespace that a name is in, sorted, each once.
func (p *patterns) match(namespace string, name []byte) (sets []string) {
	lists := 0
	add := func(some []*patternSet) {
		before := len(sets)
		for _, s := range some {
			if _, ok := s.namespaces[namespace]; ok {
				sets = append(sets, s.name)
			}
		}
		if len(sets) > before {
			lists++
		}
	}
	add(p.exact[string(name)])
	for above := range parents(name) {
		add(p.under[string(above)])
	}
	if lists > 1 {
		slices.Sort(sets)
		sets = slices.Compact(sets)
	}
	return sets
}

// domains yields the domain names of sets that a name matches.
func (p *patterns) domains(name string) func(yield func(domain) bool) {
	return func(yield func(domain) bool) {
		if len(p.exact[name]) > 0 && !yield(domain{wire: name}) {
			return
		}
		for above := range parents([]byte(name)) {
			if len(p.under[string(above)]) > 0 && !yield(domain{name[len(name)-len(above):], true}) {
				return
			}
		}
	}
}

// parents yields the names above a name, up to the root.
func parents(name []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(name) > 0 {
			name = name[1+int(name[0]):]
			if !yield(name) {
				return
			}
		}
	}
}
