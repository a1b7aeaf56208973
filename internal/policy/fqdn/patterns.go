package fqdn

import (
	"log/slog"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// patterns finds the sets that a name is in. It is immutable.
type patterns struct {
	exact map[string][]string // sets by name, in wire form without the root's closing octet
	under map[string][]string // sets by the name above
	of    map[string][]domain // by set
	// The lengths of the keys: most names are told apart by these alone.
	exactLens, underLens lengths
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
func compile(sets map[string][]string, log *slog.Logger) *patterns {
	p := &patterns{
		exact: make(map[string][]string), under: make(map[string][]string), of: make(map[string][]domain, len(sets)),
	}
	for set, domains := range sets {
		p.of[set] = nil
		for _, text := range domains {
			text, isWildcard := strings.CutPrefix(text, wildcard)
			name, err := dnsname.Parse(text)
			if err != nil {
				log.Warn("policy's domain name matches nothing", "set", set, "err", err)
				continue
			}
			wire, into, lens := name.WireLabels(), p.exact, &p.exactLens
			if isWildcard {
				into, lens = p.under, &p.underLens
			}
			if !slices.Contains(into[wire], set) {
				into[wire] = append(into[wire], set)
				lens.add(len(wire))
				p.of[set] = append(p.of[set], domain{wire, isWildcard})
			}
		}
	}
	return p
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

// match appends the sets that a name is in, each once.
func (p *patterns) match(sets []string, name []byte) []string {
	add := func(some []string) {
		for _, set := range some {
			if !slices.Contains(sets, set) {
				sets = append(sets, set)
			}
		}
	}
	add(p.exact[string(name)])
	for above := range parents(name) {
		add(p.under[string(above)])
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
