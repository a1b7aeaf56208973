package lint

import (
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/suggest"
)

// mentions checks that the Services exist whose names are in the environment and the
// arguments of containers.
func (p *podChecker) mentions() {
	if !p.loaded(cluster.KindService, cluster.KindNamespace) {
		return
	}
	for _, m := range p.subject.Spec.Mentions {
		before, domain, _ := strings.Cut(m.Name+".", ".svc.")
		domain = strings.TrimSuffix(domain, ".")
		if domain != "" && !slices.Contains(p.Domains, domain) {
			p.mentionOutside(before, domain, m)
			continue
		}
		if key, ok := serviceOf(append(strings.Split(before, "."), "svc")); ok && p.View.Service(key) == nil {
			p.mentionOf(key, m)
		}
	}
}

// mentionOutside reports a name in a domain that is a misspelling of the cluster domain.
// Others may be those of other clusters.
func (p *podChecker) mentionOutside(before, domain string, m cluster.Mention) {
	if slices.ContainsFunc(p.Served, func(of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }) {
		return
	}
	i := slices.IndexFunc(p.Domains, func(of string) bool { return misspells(domain, of) })
	if i < 0 {
		return
	}
	p.add(PodNameMissingService, p.field(m.Field), "write "+before+".svc."+p.Domains[i],
		"%s ends in %s, and the cluster domain is %s", m.Name, domain, p.Domains[i])
}

// misspells reports whether a domain is another one with a typo: a letter is missing or, inside
// of a word, another one, one too many, or swapped with its neighbor. Other clusters have
// domains that differ at the end of a word or in a digit, as cluster2.local and prod-b.example.
func misspells(domain, of string) bool {
	start := 0
	for start < min(len(domain), len(of)) && domain[start] == of[start] {
		start++
	}
	got, want := domain[start:], of[start:]
	for got != "" && want != "" && got[len(got)-1] == want[len(want)-1] {
		got, want = got[:len(got)-1], want[:len(want)-1]
	}
	if strings.ContainsAny(got+want, "0123456789.-") {
		return false
	}
	switch {
	case got == "":
		return len(want) == 1
	case len(got) == 2 && len(want) == 2:
		return got[0] == want[1] && got[1] == want[0]
	}
	return len(got) == 1 && len(want) <= 1 && insideWord(domain, start)
}

// insideWord reports whether the octet is neither the first nor the last one of a word.
func insideWord(domain string, at int) bool {
	const between = ".-"
	return at > 0 && at+1 < len(domain) &&
		!strings.Contains(between, domain[at-1:at]) && !strings.Contains(between, domain[at+1:at+2])
}

// mentionOf reports the name of a Service that does not exist, unless it may be in
// manifests that were not read.
func (p *podChecker) mentionOf(key cluster.Key, m cluster.Mention) {
	near := p.indexed().similarService(key.Namespace, key.Name)
	hint, fix := didYouMean(near), "create the Service, or correct the name"
	if near != "" {
		fix = "write " + near + "." + key.Namespace + ".svc, or create the Service"
	}
	switch {
	case !p.Observed && (len(p.indexed().services[key.Namespace]) == 0 || key == apiServer || key == p.DNSService):
		near = p.similarNamespace(key.Namespace)
		if near == "" || p.View.Service(cluster.Key{Namespace: near, Name: key.Name}) == nil {
			return
		}
		hint, fix = didYouMean(near), "write "+key.Name+"."+near+".svc"
	case p.View.Namespace(key.Namespace) == nil:
		hint, fix = didYouMean(p.similarNamespace(key.Namespace)), "correct the namespace, or create it"
	}
	if p.View.Namespace(key.Namespace) == nil {
		p.add(PodNameMissingService, p.field(m.Field), fix, "namespace %s does not exist%s, so %s does not resolve",
			key.Namespace, hint, m.Name)
		return
	}
	p.add(PodNameMissingService, p.field(m.Field), fix, "Service %s does not exist%s, so %s does not resolve", key, hint,
		m.Name)
}

// similarNamespace returns the namespace with the most similar name, or "" if none is
// similar.
func (c *Linter) similarNamespace(name string) string {
	var names []string
	for n := range c.View.Namespaces() {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return suggest.Closest(name, names)
}

// namespaceLabel is the label of every namespace with its name as value.
const namespaceLabel = "kubernetes.io/metadata.name"

// CheckNetworkPolicy checks that namespaces exist which a NetworkPolicy names.
func (c *Linter) CheckNetworkPolicy(n *cluster.NetworkPolicy) []Finding {
	j := c.reporterFor(cluster.KindNetworkPolicy, n.Key)
	if !j.loaded(cluster.KindNamespace) {
		return nil
	}
	j.peers("ingress", "from", n.IngressRules)
	j.peers("egress", "to", n.EgressRules)
	return j.found()
}

// peers reports peers in namespaces that do not exist.
func (j *reporter) peers(direction, field string, rules []cluster.PolicyRule) {
	for i := range rules {
		for k, peer := range rules[i].Peers {
			if peer.Namespaces == nil {
				continue
			}
			name := peer.Namespaces.Labels[namespaceLabel]
			if name == "" || j.View.Namespace(name) != nil {
				continue
			}
			near := j.similarNamespace(name)
			if near == "" && !j.Observed {
				continue
			}
			fix := "correct the name, or create the namespace"
			if near != "" {
				fix = "write " + near
			}
			j.add(NetworkPolicyPeerMissing, peerField(direction, field, i, k), fix,
				"namespace %s does not exist%s: the rule allows nothing", name, didYouMean(near))
		}
	}
}

// peerField returns the path of the label in a peer.
func peerField(direction, field string, rule, peer int) string {
	return cluster.RulePath(direction, rule) + "." + field + at(peer) + ".namespaceSelector.matchLabels"
}
