package explain

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/internal/support/suggest"
)

// otherDomain reports whether the name is that of a Service or a Pod in a domain that is
// not the cluster domain: a misspelled one, a part of it, or that of another cluster. If the
// name would not resolve in the cluster domain either, the cause of that follows.
func (d *diagnoser) otherDomain() bool {
	name, rooted := strings.CutSuffix(d.Name, ".")
	labels := strings.Split(name, ".")
	domain := d.Linter.Domains[0]
	rest := len(labels) - wrongDomain(labels, domain)
	if rest == len(labels) || d.inDomain(name) {
		return false
	}
	right := strings.Join(labels[:rest], ".") + "." + domain
	cure := "use the cluster domain"
	if rooted {
		right += "."
	}
	if m, ok := meaningOf(right, d.Linter.Domains); ok {
		d.e.Meant = m.service
	}
	if d.resolves(right) {
		cure = fmt.Sprintf("ask for %q", right)
	}
	d.add(
		"other-domain",
		cure,
		"the name ends in %s, and the cluster domain is %s",
		strings.Join(labels[rest:], "."),
		domain,
	)
	if m, ok := meaningOf(right, d.Linter.Domains); ok && !d.resolves(right) {
		d.meant(m)
	}
	return true
}

// wrongDomain returns how many labels at the end of a name stand where the cluster domain
// would: those after SERVICE.NAMESPACE.svc or ADDRESS.NAMESPACE.pod, or those that are
// similar to the cluster domain.
func wrongDomain(labels []string, domain string) int {
	const first = 2 // labels before svc, at least
	for i, label := range labels {
		if i >= first && i < len(labels)-1 && (strings.EqualFold(label, "svc") || strings.EqualFold(label, "pod")) {
			return len(labels) - i - 1
		}
	}
	n := strings.Count(domain, ".") + 1
	if len(labels) <= n+1 {
		return 0
	}
	tail := strings.ToLower(strings.Join(labels[len(labels)-n:], "."))
	if suggest.Closest(tail, []string{domain}) == "" {
		return 0
	}
	return n
}
