package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// trailingDot reports whether the name resolves without its trailing dot.
func (d *diagnoser) trailingDot() bool {
	name, rooted := strings.CutSuffix(d.Name, ".")
	if !rooted || name == "" {
		return false
	}
	other := *d.Request
	other.Name = name
	trace := other.resolve(d.conf, d.Libc, d.a)
	switch {
	case trace.Outcome == stubresolver.Found:
		d.mean(namesOf(&trace))
		d.add("trailing-dot", fmt.Sprintf("ask for %q", name),
			"the trailing dot disables the search list, with which the name resolves")
		return true
	case d.meansOnly(&trace):
		d.add(
			"trailing-dot",
			"leave it out",
			"the trailing dot disables the search list, with which names of Services are completed",
		)
		d.names = namesOf(&trace)
	}
	return false
}

// mean notes the Service that one of the names which another lookup tries stands for.
func (d *diagnoser) mean(names []string) {
	if m, likely := d.likeliest(names); likely > 0 {
		d.e.Meant = m.service
	}
}

// meansOnly reports whether the name stands for something in the cluster in another
// lookup, and not in this one.
func (d *diagnoser) meansOnly(other *stubresolver.Trace) bool {
	if _, ok := d.meaning(); ok {
		return false
	}
	_, likely := d.likeliest(namesOf(other))
	return likely >= inNamespace
}

// policy reports whether the name resolves with the default policy. If it does not, and
// only stands for something in the cluster with that policy, it sets the names to those of
// the default policy.
func (d *diagnoser) policy() bool {
	if len(d.Node.ClusterDNS) == 0 {
		return false
	}
	pod := d.Subject.Settings()
	pod.Policy, pod.DNSConfig = dnsconfig.ClusterFirstWithHostNet, nil
	usual := dnsconfig.Resolve(pod, d.Node).Config
	trace := d.simulate(usual, d.Libc)
	if trace.Outcome == stubresolver.Found {
		d.mean(namesOf(&trace))
		d.addPolicy("the name resolves")
		return true
	}
	if d.meansOnly(&trace) {
		d.addPolicy("names of Services are completed")
		d.conf, d.names = usual, namesOf(&trace)
	}
	return false
}

// usualNdots is the option ndots of dnsPolicy ClusterFirst.
const usualNdots = 5

// addPolicy adds that the Pod's settings differ from those with which lookups succeed.
func (d *diagnoser) addPolicy(lookups string) {
	cure := "set dnsPolicy: ClusterFirst"
	if d.Subject.Spec.HostNetwork {
		cure = "set dnsPolicy: ClusterFirstWithHostNet, because the Pod has hostNetwork"
	}
	given, effect := policyName(d.Subject.Spec.DNSPolicy), ""
	if given != string(d.e.Policy) {
		effect = fmt.Sprintf(", in effect %s", d.e.Policy)
	}
	isClusterDNS := func(a netip.Addr) bool { return slices.Contains(d.Node.ClusterDNS, a) || a.IsLinkLocalUnicast() }
	switch {
	case d.hasAutopath():
		d.add("autopath", "point the Pod to a server that does (docs/webhook.md), or use the fully qualified name",
			"the Pod's search domain, %s, stands for a search list that the server applies, and this server does not",
			strings.Join(d.conf.Searches, " "))
	case !slices.ContainsFunc(d.conf.Nameservers, isClusterDNS):
		d.add("not-cluster-dns", cure, "the Pod does not use the cluster DNS: its dnsPolicy is %s%s", given, effect)
	case d.e.Ndots < usualNdots && slices.Contains(d.conf.Searches, "svc."+d.Linter.Domains[0]):
		d.add("few-ndots", fmt.Sprintf("set the option ndots:%d in dnsConfig, or use the fully qualified name", usualNdots),
			"the Pod has ndots:%d, so that its resolver (%s) does not complete a name with as many dots; with ndots:%d %s",
			d.e.Ndots, d.e.Resolver, usualNdots, lookups)
	default:
		d.add("no-search", "add the search domains of ClusterFirst to dnsConfig, or use the fully qualified name",
			"the Pod lacks the search domains, or the ndots, with which %s", lookups)
	}
}

// hasAutopath reports whether the Pod has a search domain of ClusterFirstWithAutopath:
// search.NAMESPACE.ZONE.SUFFIX, with any suffix.
func (d *diagnoser) hasAutopath() bool {
	return slices.ContainsFunc(d.conf.Searches, func(domain string) bool {
		rest, ok := strings.CutPrefix(strings.ToLower(domain), "search.")
		_, rest, _ = strings.Cut(rest, ".") // after the namespace
		return ok && slices.ContainsFunc(d.Linter.Domains, func(zone string) bool {
			return strings.HasPrefix(rest, strings.ToLower(zone)+".")
		})
	})
}

func policyName(policy string) string {
	if policy == "" {
		return string(dnsconfig.ClusterFirst)
	}
	return policy
}

// resolver reports whether the name resolves with glibc.
func (d *diagnoser) resolver() bool {
	if d.Libc == dnsconfig.Glibc {
		return false
	}
	trace := d.simulate(d.conf, dnsconfig.Glibc)
	if trace.Outcome != stubresolver.Found || len(trace.Candidates) == 0 {
		return false
	}
	d.mean(namesOf(&trace))
	name := trace.Candidates[len(trace.Candidates)-1].Name
	d.add("resolver", fmt.Sprintf("use the fully qualified name, %q", name),
		"glibc's resolver would find %s; this one (%s) does not: %s", name, d.e.Resolver, d.e.Why)
	return true
}
