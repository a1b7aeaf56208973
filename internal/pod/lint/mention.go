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
			if near := suggest.Closest(domain, p.Domains); near != "" {
				p.add(PodNameMissingService, p.field(m.Field), "write "+before+".svc."+near,
					"%s ends in %s, and the cluster domain is %s: it does not resolve", m.Name, domain, near)
			}
			continue
		}
		if key, ok := serviceOf(append(strings.Split(before, "."), "svc")); ok && p.View.Service(key) == nil {
			p.mentionOf(key, m)
		}
	}
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
	j.peers("spec.ingress", "from", n.IngressRules)
	j.peers("spec.egress", "to", n.EgressRules)
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
	return direction + at(rule) + "." + field + at(peer) + ".namespaceSelector.matchLabels"
}
