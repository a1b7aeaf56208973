package lint

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// Subject judges a Pod, or the Pods that a workload makes.
func (c *Linter) CheckSubject(s *dnsconfig.Subject) []Finding {
	if gone(s) || s.Pod != nil && s.Pod.Spec == nil {
		return nil
	}
	p := podChecker{reporter: c.reporterFor(s.Kind, s.Key), subject: s, settings: s.Settings(), node: c.Node(s)}
	p.resolved = dnsconfig.Resolve(p.settings, p.node)
	p.refused()
	p.warnings(p.resolved.Warnings)
	p.policy()
	p.nameservers()
	p.searches()
	p.zeros()
	p.ndots()
	p.hostname()
	p.subdomain()
	p.statefulSet()
	p.sharedHostname()
	p.reachesDNS()
	return p.found()
}

// podJudge judges one Subject.
type podChecker struct {
	*reporter
	subject  *dnsconfig.Subject
	settings dnsconfig.PodSettings
	node     dnsconfig.NodeSettings
	resolved dnsconfig.Resolution
	errors   []*dnsconfig.FieldError
}

// field is the path of a field of the PodSpec.
func (p *podChecker) field(name string) string {
	if p.settings.Path == "" {
		return "spec." + name
	}
	return p.settings.Path + "." + name
}

// refused: what the API server does not take.
func (p *podChecker) refused() {
	p.errors = dnsconfig.Validate(p.settings)
	for _, e := range p.errors {
		p.add(PodDNSRefused, e.Field, "set it to what the API server takes", "%s", strings.TrimPrefix(e.Error(), e.Field+": "))
	}
}

// isRefused tells whether the API server refuses a field, so that nothing more
// is to be said of it.
func (p *podChecker) isRefused(field string) bool {
	return field != "" && slices.ContainsFunc(p.errors, func(e *dnsconfig.FieldError) bool {
		return strings.HasPrefix(field, e.Field) || strings.HasPrefix(e.Field, field)
	})
}

// told is what becomes of podresolv's warnings: the rule, and the cure.
var told = map[dnsconfig.Topic]struct{ rule, fix string }{
	dnsconfig.Limits:              {PodDNSLimit, "leave out what the Pod does not need"},
	dnsconfig.OlderLimits:         {PodDNSOlderLimit, "leave out what the Pod does not need"},
	dnsconfig.NoClusterDNS:        {PodNoClusterDNS, "set clusterDNS in the kubelet's configuration"},
	dnsconfig.NoClusterDomain:     {PodNoClusterDomain, "set clusterDomain in the kubelet's configuration"},
	dnsconfig.UnknownPolicy:       {PodPolicyUnknown, "set it to ClusterFirst, ClusterFirstWithHostNet, Default or None"},
	dnsconfig.HostNetworkPolicy:   {PodHostNetworkPolicy, "set it to ClusterFirstWithHostNet, or to Default if no name of the cluster is needed"},
	dnsconfig.WindowsPolicy:       {PodWindowsPolicy, "leave out hostNetwork and dnsPolicy"},
	dnsconfig.WindowsSearch:       {PodWindowsSearch, "write whole names in what the Pod runs"},
	dnsconfig.IgnoredOption:       {PodDNSOptionUnknown, "leave it out, or spell it as resolv.conf(5) does"},
	dnsconfig.OptionWithoutValue:  {PodDNSOptionWithoutValue, "give it a value"},
	dnsconfig.NonCanonicalAddress: {PodNameserverSpelling, "spell it as RFC 5952 has it"},
	dnsconfig.TruncatedHostname:   {PodHostnameCut, "set a shorter hostname"},
	dnsconfig.IgnoredFQDN:         {PodFQDNNoEffect, "leave out setHostnameAsFQDN, or give the Pod a subdomain and its own network"},
	dnsconfig.FQDNTooLong:         {PodFQDNTooLong, "shorten the hostname, the subdomain or the Namespace's name, or leave out setHostnameAsFQDN"},
}

// warnings are podresolv's, in its words.
func (p *podChecker) warnings(all []dnsconfig.Warning) {
	for _, w := range all {
		t, ok := told[w.Topic]
		if !ok || p.isRefused(w.Field) || saidBy(w, all) || w.Topic == dnsconfig.TruncatedHostname && p.nameIsMade() {
			continue
		}
		p.add(t.rule, w.Field, t.fix, "%s", w.Message)
	}
}

// saidBy tells whether another warning says more: a list over Kubernetes' limits
// is over older ones, and a policy that Windows does not have searches nothing.
func saidBy(w dnsconfig.Warning, all []dnsconfig.Warning) bool {
	return slices.ContainsFunc(all, func(more dnsconfig.Warning) bool {
		return w.Topic == dnsconfig.OlderLimits && more.Topic == dnsconfig.Limits && w.Field == more.Field ||
			w.Topic == dnsconfig.WindowsSearch && more.Topic == dnsconfig.WindowsPolicy
	})
}

// nameIsMade tells whether the Pods get their hostname by chance, which
// Kubernetes keeps short enough.
func (p *podChecker) nameIsMade() bool {
	return p.subject.Workload != nil && p.subject.Kind != cluster.KindStatefulSet && p.settings.Hostname == ""
}

// windows tells whether it is a Pod of Windows.
func (p *podChecker) windows() bool { return p.settings.OS == dnsconfig.Windows }

// clusterDNS are the addresses of the cluster's DNS.
func (p *podChecker) clusterDNS() []netip.Addr {
	addrs := slices.Clone(p.node.ClusterDNS)
	if s := p.View.Service(p.DNSService); s != nil {
		addrs = append(addrs, s.ClusterIPs...)
	}
	return addrs
}

// asks tells whether the Pod asks the cluster's DNS, and whether others. A
// link-local address is a node's cache of it.
func (p *podChecker) asks() (cluster, others bool) {
	own := p.clusterDNS()
	for _, addr := range p.resolved.Config.Nameservers {
		if slices.Contains(own, addr) || addr.IsLinkLocalUnicast() {
			cluster = true
		} else {
			others = true
		}
	}
	return cluster, others
}

// policy: with Default, or None and other nameservers, there are no names of
// the cluster.
func (p *podChecker) policy() {
	dns := p.View.Service(p.DNSService)
	if dns != nil && dns.SelectsLabels(p.subject.Namespace, p.subject.Labels) {
		return // it would ask itself
	}
	switch asksCluster, _ := p.asks(); {
	case p.settings.Policy == dnsconfig.Default && !asksCluster:
		p.add(PodPolicyDefault, p.field("dnsPolicy"), "set it to ClusterFirst, if the Pod needs names of the cluster",
			"with Default the Pod asks the node's nameservers, which have no names of the cluster")
	case p.resolved.Policy == dnsconfig.None && !asksCluster && len(p.resolved.Config.Nameservers) > 0 && len(p.clusterDNS()) > 0:
		p.add(PodPolicyNoneElsewhere, p.field("dnsConfig.nameservers"), fmt.Sprintf("name the cluster's DNS, %s, and take the nameservers out, if the Pod needs names of the cluster", p.clusterDNS()[0]),
			"with None the Pod asks only %s, which is not the cluster's DNS: names of the cluster do not resolve", addrTexts(p.resolved.Config.Nameservers))
	}
}

// addrTexts lists a few addresses.
func addrTexts(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return some(texts)
}

// nameservers: those of one list are taken for the same.
func (p *podChecker) nameservers() {
	c := p.settings.DNSConfig
	if c == nil || p.isRefused(p.field("dnsConfig.nameservers")) {
		return
	}
	if inside, outside := p.asks(); inside && outside && p.resolved.Policy != dnsconfig.Default {
		p.add(PodNameserversMixed, p.field("dnsConfig.nameservers"), "leave the others out, and let the cluster's DNS forward to them",
			"the Pod has the cluster's DNS and others, %s, which don't have the same names: musl asks all and takes the first answer, glibc asks the next when one is slow",
			addrTexts(slices.DeleteFunc(slices.Clone(p.resolved.Config.Nameservers), func(a netip.Addr) bool { return slices.Contains(p.clusterDNS(), a) })))
	}
	for i, text := range c.Nameservers {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if of := p.indexed().clusterIPs[addr]; len(of) > 0 && !hasPort(of[0], cluster.UDP) {
			p.add(PodNameserverNoDNS, p.field(fmt.Sprintf("dnsConfig.nameservers[%d]", i)), "name a DNS server",
				"%s is the cluster IP of service %s, which has no UDP port 53: it answers no query", addr, of[0].Key)
		}
	}
}

// searches: a search domain under the cluster's must be there.
func (p *podChecker) searches() {
	if p.settings.DNSConfig == nil || p.windows() {
		return
	}
	for i, search := range p.settings.DNSConfig.Searches {
		field := p.field(fmt.Sprintf("dnsConfig.searches[%d]", i))
		if p.isRefused(field) {
			continue
		}
		if search == "." {
			p.add(PodSearchRoot, field, "leave it out: a name is tried as it is given without it", "with the root as a search domain, lookups of musl, as in Alpine images, wait in vain")
			continue
		}
		search = canonical(search)
		labels, ok := p.inside(search)
		switch {
		case ok && len(labels) == 2 && labels[1] == "svc":
			if p.loaded(cluster.KindNamespace) && p.View.Namespace(labels[0]) == nil {
				p.add(PodSearchNowhere, field, "name a Namespace that is there", "there is no Namespace %s: each name costs queries under %s in vain", labels[0], search)
			}
		case !ok && isClusterLike(search):
			p.add(PodSearchNowhere, field, "write "+p.domain()+" for the cluster's domain",
				"%s looks like a domain of a cluster, and this cluster's is %s: each name costs queries in vain, which leave the cluster", search, p.domain())
		}
	}
}

// isClusterLike tells whether a search domain is svc.DOMAIN or
// NAMESPACE.svc.DOMAIN.
func isClusterLike(search string) bool {
	labels := strings.Split(search, ".")
	return len(labels) > 2 && (labels[0] == "svc" || labels[1] == "svc")
}

const (
	// capNdots is the highest ndots: resolvers take more for that (glibc:
	// RES_MAXNDOTS; musl: src/network/resolvconf.c).
	capNdots = 15
	// manyQueries is one and a half times what ClusterFirst alone costs.
	manyQueries = 12
	// outside stands for a name that is not the cluster's.
	outside = "api.example.com"
)

// zeros: options that keep musl from asking.
func (p *podChecker) zeros() {
	if p.settings.DNSConfig == nil || p.windows() {
		return
	}
	for i, o := range p.settings.DNSConfig.Options {
		if n, err := strconv.Atoi(o.Value); err == nil && n == 0 && (o.Name == "attempts" || o.Name == "timeout") {
			p.add(PodOptionZero, p.field(fmt.Sprintf("dnsConfig.options[%d]", i)), "set it to 1 or more", "with %s programs that use musl, as in Alpine images, look nothing up", o)
		}
	}
}

// ndots decides what is searched first.
func (p *podChecker) ndots() {
	c := p.settings.DNSConfig
	if c == nil || p.windows() {
		return
	}
	n, field := p.ownNdots(c)
	if field != "" {
		switch {
		case n > capNdots:
			p.add(PodNdotsCapped, field, fmt.Sprintf("set it to %d or less", capNdots), "ndots:%d is more than resolvers take: it is %d", n, capNdots)
		case n < 2 && p.resolved.Policy != dnsconfig.Default && len(p.resolved.Config.Searches) > 0:
			p.add(PodNdotsLow, field, "set it to 2 or more, or write whole names",
				"with ndots:%d musl does not search names with a dot, such as SERVICE.NAMESPACE, and they do not resolve there; glibc asks outside the cluster for them first", n)
		}
	}
	searches := len(p.resolved.Config.Searches)
	if queries := 2 * (searches + 1); queries >= manyQueries && n > strings.Count(outside, ".") && (field != "" || len(c.Searches) > 0) {
		p.add(PodManyQueries, p.field("dnsConfig"), "set the option ndots to 2, or write names outside the cluster with a closing dot",
			"a name such as %s costs up to %d queries: each of %d search domains is tried before it (ndots:%d), for A and AAAA", outside, queries, searches, n)
	}
}

// ownNdots is the ndots that is in force, and the field that sets it, "" if
// that is not the Pod's.
func (p *podChecker) ownNdots(c *dnsconfig.DNSConfig) (n int, field string) {
	n = 1
	for _, o := range p.resolved.Config.Options {
		if v, err := strconv.Atoi(o.Value); o.Name == "ndots" && err == nil {
			n = v
		}
	}
	for i, o := range c.Options {
		if isNdots(o) {
			field = p.field(fmt.Sprintf("dnsConfig.options[%d]", i))
		}
	}
	return n, field
}

// isNdots tells whether an option is ndots, with a number.
func isNdots(o resolvconf.Option) bool {
	_, err := strconv.Atoi(o.Value)
	return o.Name == "ndots" && err == nil
}

// hostname: what the Pod takes for its own name.
func (p *podChecker) hostname() {
	h, err := dnsconfig.HostnameOf(p.settings, p.node)
	p.warnings(h.Warnings)
	if long, ok := err.(*dnsconfig.FQDNError); ok {
		p.warnings([]dnsconfig.Warning{long.Warning()})
	}
}
