package lint

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// CheckSubject checks a Pod, or the Pods that a workload creates.
func (c *Linter) CheckSubject(s *dnsconfig.Subject) []Finding {
	if s.Finished() || s.Pod != nil && s.Pod.Spec == nil {
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
	p.mentions()
	p.reachesDNS()
	p.bandwidth()
	return p.found()
}

// podChecker checks one Subject.
type podChecker struct {
	*reporter
	subject  *dnsconfig.Subject
	settings dnsconfig.PodSettings
	node     dnsconfig.NodeSettings
	resolved dnsconfig.Resolution
	errors   []*dnsconfig.FieldError
}

// field returns the path of a field of the PodSpec in its object.
func (p *podChecker) field(name string) string {
	if p.settings.Path == "" {
		return "spec." + name
	}
	return p.settings.Path + "." + name
}

// refused reports the settings that the API server refuses.
func (p *podChecker) refused() {
	p.errors = dnsconfig.Validate(p.settings)
	for _, e := range p.errors {
		p.add(PodDNSRefused, e.Field, "set it to a value that the API server accepts", "%s",
			strings.TrimPrefix(e.Error(), e.Field+": "))
	}
}

// isRefused reports whether the API server refuses a field. Other rules skip it then.
func (p *podChecker) isRefused(field string) bool {
	return field != "" && slices.ContainsFunc(p.errors, func(e *dnsconfig.FieldError) bool {
		return strings.HasPrefix(field, e.Field) || strings.HasPrefix(e.Field, field)
	})
}

// warningRules has the rule and the cure for each topic of package dnsconfig.
var warningRules = map[dnsconfig.Topic]struct{ rule, fix string }{
	dnsconfig.Limits:          {PodDNSLimit, "remove what the Pod does not need"},
	dnsconfig.OlderLimits:     {PodDNSOlderLimit, "remove what the Pod does not need"},
	dnsconfig.NoClusterDNS:    {PodNoClusterDNS, "set clusterDNS in the kubelet's configuration"},
	dnsconfig.NoClusterDomain: {PodNoClusterDomain, "set clusterDomain in the kubelet's configuration"},
	dnsconfig.UnknownPolicy:   {PodPolicyUnknown, "set it to ClusterFirst, ClusterFirstWithHostNet, Default or None"},
	dnsconfig.HostNetworkPolicy: {
		PodHostNetworkPolicy,
		"set it to ClusterFirstWithHostNet, or to Default if the Pod needs no names of the cluster",
	},
	dnsconfig.WindowsPolicy:       {PodWindowsPolicy, "remove hostNetwork and dnsPolicy"},
	dnsconfig.WindowsSearch:       {PodWindowsSearch, "use fully qualified names in the Pod's programs"},
	dnsconfig.IgnoredOption:       {PodDNSOptionUnknown, "remove it, or spell it as in resolv.conf(5)"},
	dnsconfig.OptionWithoutValue:  {PodDNSOptionWithoutValue, "give it a value"},
	dnsconfig.NonCanonicalAddress: {PodNameserverSpelling, "write it as in RFC 5952"},
	dnsconfig.TruncatedHostname:   {PodHostnameCut, "set a shorter hostname"},
	dnsconfig.IgnoredFQDN: {
		PodFQDNNoEffect,
		"remove setHostnameAsFQDN, or set a subdomain and remove hostNetwork",
	},
	dnsconfig.FQDNTooLong: {
		PodFQDNTooLong,
		"shorten the hostname, the subdomain or the namespace's name, or remove setHostnameAsFQDN",
	},
}

// warnings reports the warnings of package dnsconfig.
func (p *podChecker) warnings(all []dnsconfig.Warning) {
	for _, w := range all {
		t, ok := warningRules[w.Topic]
		if !ok || p.isRefused(w.Field) || isImplied(w, all) ||
			w.Topic == dnsconfig.TruncatedHostname && p.hasGeneratedName() {
			continue
		}
		p.add(t.rule, w.Field, t.fix, "%s", w.Message)
	}
}

// isImplied reports whether another warning implies w: a list that exceeds the limits
// of Kubernetes exceeds the older ones, and a policy that Windows does not support has
// no search domains there.
func isImplied(w dnsconfig.Warning, all []dnsconfig.Warning) bool {
	return slices.ContainsFunc(all, func(more dnsconfig.Warning) bool {
		return w.Topic == dnsconfig.OlderLimits && more.Topic == dnsconfig.Limits && w.Field == more.Field ||
			w.Topic == dnsconfig.WindowsSearch && more.Topic == dnsconfig.WindowsPolicy
	})
}

// hasGeneratedName reports whether the hostnames are generated Pod names, which
// Kubernetes keeps short enough.
func (p *podChecker) hasGeneratedName() bool {
	return p.subject.Workload != nil && p.subject.Kind != cluster.KindStatefulSet && p.settings.Hostname == ""
}

// windows reports whether it is a Windows Pod.
func (p *podChecker) windows() bool { return p.settings.OS == dnsconfig.Windows }

// clusterDNS returns the addresses of the cluster DNS: those of the kubelet's
// clusterDNS, and the cluster IPs of its Service.
func (p *podChecker) clusterDNS() []netip.Addr {
	addrs := slices.Clone(p.node.ClusterDNS)
	if s := p.View.Service(p.DNSService); s != nil {
		addrs = append(addrs, s.ClusterIPs...)
	}
	return addrs
}

// nameserverKinds reports whether the Pod's nameservers include the cluster DNS, and
// whether they include others. A link-local address is a cache on the node, which
// counts as the cluster DNS.
func (p *podChecker) nameserverKinds() (cluster, others bool) {
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

// policy reports a dnsPolicy with which the Pod does not use the cluster DNS.
func (p *podChecker) policy() {
	dns := p.View.Service(p.DNSService)
	if dns != nil && dns.SelectsLabels(p.subject.Namespace, p.subject.Labels) {
		return // it is the cluster DNS itself
	}
	switch usesClusterDNS, _ := p.nameserverKinds(); {
	case p.settings.Policy == dnsconfig.Default && !usesClusterDNS:
		p.add(PodPolicyDefault, p.field("dnsPolicy"), "set it to ClusterFirst, if the Pod needs names of the cluster",
			"with Default the Pod uses the node's nameservers, which do not resolve names of the cluster")
	case p.resolved.Policy == dnsconfig.None && !usesClusterDNS &&
		len(p.resolved.Config.Nameservers) > 0 && len(p.clusterDNS()) > 0:
		p.add(PodPolicyNoneElsewhere, p.field("dnsConfig.nameservers"),
			fmt.Sprintf("replace the nameservers by the cluster DNS, %s, if the Pod needs names of the cluster",
				p.clusterDNS()[0]),
			"with None the Pod uses only %s, which is not the cluster DNS: names of the cluster do not resolve",
			addrTexts(p.resolved.Config.Nameservers))
	}
}

// addrTexts lists the first few addresses.
func addrTexts(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return firstFew(texts)
}

// nameservers checks that all nameservers are DNS servers and resolve the same names.
func (p *podChecker) nameservers() {
	c := p.settings.DNSConfig
	if c == nil || p.isRefused(p.field("dnsConfig.nameservers")) {
		return
	}
	if inside, outside := p.nameserverKinds(); inside && outside && p.resolved.Policy != dnsconfig.Default {
		p.add(PodNameserversMixed, p.field("dnsConfig.nameservers"),
			"remove the others, and let the cluster DNS forward to them",
			"the Pod has the cluster DNS and other nameservers, %s, which do not resolve the same names: musl queries "+
				"all and uses the first response, glibc queries the next when one is slow",
			addrTexts(slices.DeleteFunc(slices.Clone(p.resolved.Config.Nameservers),
				func(a netip.Addr) bool { return slices.Contains(p.clusterDNS(), a) })))
	}
	for i, text := range c.Nameservers {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if of := p.indexed().clusterIPs[addr]; len(of) > 0 && !hasPort(of[0], cluster.UDP) {
			p.add(PodNameserverNoDNS, p.field(fmt.Sprintf("dnsConfig.nameservers[%d]", i)), "use the address of a DNS server",
				"%s is the cluster IP of service %s, which has no UDP port 53: it answers no query", addr, of[0].Key)
		}
	}
}

// searches checks that search domains exist.
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
			p.add(PodSearchRoot, field, "remove it: resolvers try a name as given without it",
				"with the root as a search domain, lookups by musl, the libc of Alpine images, time out")
			continue
		}
		search = canonical(search)
		labels, ok := p.cutDomain(search)
		switch {
		case ok && len(labels) == 2 && labels[1] == "svc":
			if p.loaded(cluster.KindNamespace) && p.View.Namespace(labels[0]) == nil {
				p.add(PodSearchNowhere, field, "name an existing namespace",
					"namespace %s does not exist: each lookup sends useless queries for names in %s", labels[0], search)
			}
		case !ok && isClusterLike(search):
			p.add(PodSearchNowhere, field, "use the cluster domain "+p.domain(),
				"%s looks like a domain of a cluster, and this cluster's is %s: each lookup sends useless queries, which "+
					"leave the cluster",
				search, p.domain())
		}
	}
}

// isClusterLike reports whether a search domain has the form svc.DOMAIN or
// NAMESPACE.svc.DOMAIN.
func isClusterLike(search string) bool {
	labels := strings.Split(search, ".")
	return len(labels) > 2 && (labels[0] == "svc" || labels[1] == "svc")
}

const (
	// capNdots is the highest ndots that resolvers use (glibc: RES_MAXNDOTS; musl:
	// src/network/resolvconf.c).
	capNdots = 15
	// manyQueries is one and a half times the number of queries with ClusterFirst.
	manyQueries = 12
	// outside is an example of a name outside the cluster.
	outside = "api.example.com"
)

// zeros reports options with which musl sends no queries.
func (p *podChecker) zeros() {
	if p.settings.DNSConfig == nil || p.windows() {
		return
	}
	for i, o := range p.settings.DNSConfig.Options {
		if n, err := strconv.Atoi(o.Value); err == nil && n == 0 && (o.Name == "attempts" || o.Name == "timeout") {
			p.add(PodOptionZero, p.field(fmt.Sprintf("dnsConfig.options[%d]", i)), "set it to 1 or more",
				"with %s, programs that use musl, the libc of Alpine images, resolve no names", o)
		}
	}
}

// ndots checks the option ndots, and how many queries a lookup sends.
func (p *podChecker) ndots() {
	c := p.settings.DNSConfig
	if c == nil || p.windows() {
		return
	}
	n, field := p.ownNdots(c)
	if field != "" {
		switch {
		case n > capNdots:
			p.add(PodNdotsCapped, field, fmt.Sprintf("set it to %d or less", capNdots),
				"ndots:%d exceeds the maximum of resolvers, which use %d", n, capNdots)
		case n < 2 && p.resolved.Policy != dnsconfig.Default && len(p.resolved.Config.Searches) > 0:
			p.add(PodNdotsLow, field, "set it to 2 or more, or use fully qualified names",
				"with ndots:%d, musl does not try the search domains for names with a dot, such as SERVICE.NAMESPACE, so "+
					"they do not resolve; glibc looks them up outside the cluster first",
				n)
		}
	}
	searches := len(p.resolved.Config.Searches)
	if queries := 2 * (searches + 1); queries >= manyQueries && n > strings.Count(outside, ".") &&
		(field != "" || len(c.Searches) > 0) {
		p.add(PodManyQueries, p.field("dnsConfig"),
			"set the option ndots to 2, or write names outside the cluster with a trailing dot",
			"a lookup of a name such as %s sends up to %d queries: each of the %d search domains is tried first "+
				"(ndots:%d), for A and AAAA",
			outside, queries, searches, n)
	}
}

// ownNdots returns the effective ndots, and the field of the PodSpec that sets it, or
// "" if the Pod does not set it.
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

// isNdots reports whether an option is ndots with a number.
func isNdots(o resolvconf.Option) bool {
	_, err := strconv.Atoi(o.Value)
	return o.Name == "ndots" && err == nil
}

// hostname reports problems with the Pod's hostname and FQDN.
func (p *podChecker) hostname() {
	h, err := dnsconfig.HostnameOf(p.settings, p.node)
	p.warnings(h.Warnings)
	if long, ok := errors.AsType[*dnsconfig.FQDNError](err); ok {
		p.warnings([]dnsconfig.Warning{long.Warning()})
	}
}
