package connection

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// egress returns the ruling on the egress of a Pod. Rules by domain name count as those of the kernel do: for
// an address that DNS answered a Pod of the node with.
func (x *explainer) egress(f *flow) *Ruling {
	evaluate := func(to *semantics.End) semantics.Verdict { return x.set().Egress(f.from, to, f.port, f.virtual...) }
	v := evaluate(f.to)
	k := x.askKernel(f, ruleset.Egress, f.from)
	switch names, byName := x.domainsOf(f, &v); {
	case len(names) > 0 && k.isKnown() && k.verdict.Allowed && k.verdict.Resolved > 0:
		r := x.rulingOf(f, &byName, ruleset.Egress)
		r.Why += ", as an address of " + strings.Join(names, " or ")
		r.Kernel = &KernelRuling{KernelAgrees, fmt.Sprintf("DNS answered with the address, which counts for %s more",
			k.verdict.Resolved.Round(time.Second))}
		return r
	case len(names) > 0 && !k.isKnown():
		x.e.Note = fmt.Sprintf("%s is allowed while a Pod of the node has it from DNS as an address of %s: "+
			"give the name instead, or run the command on the node", f.to.Addrs[0], strings.Join(names, " or "))
	case k.isKnown() && v.Allowed && !k.verdict.Allowed && x.needsName(f):
		r := x.rulingOf(f, &v, ruleset.Egress)
		r.Kernel = &KernelRuling{KernelAgrees, "it gets the address when a Pod of the node looks the name up"}
		return r
	}
	r := x.rulingOf(f, &v, ruleset.Egress)
	r.Kernel = x.compare(k, v.Allowed)
	if f.to.Namespace != "" {
		r.doubt(f.to, ruleset.Egress, evaluate)
	}
	return r
}

// domainsOf returns the domain names of policies of which the address that a client connects to, and v denies,
// would be allowed, and the verdict then. If it was reached by a name, there are none.
func (x *explainer) domainsOf(f *flow, v *semantics.Verdict) (names []string, byName semantics.Verdict) {
	if v.Allowed || len(f.to.Names) > 0 || len(f.to.Addrs) == 0 {
		return nil, byName
	}
	applying := x.set().EgressOf(f.from)
	for _, name := range applying.Domains() {
		to := *f.to
		to.Names = []string{name}
		if v := x.set().Egress(f.from, &to, f.port, f.virtual...); v.Allowed {
			if names = append(names, name); len(names) == 1 {
				byName = v
			}
		}
	}
	return names, byName
}

// needsName reports whether a connection is allowed for its domain name only.
func (x *explainer) needsName(f *flow) bool {
	to := *f.to
	to.Names = nil
	return len(f.to.Names) > 0 && !x.set().Egress(f.from, &to, f.port, f.virtual...).Allowed
}
