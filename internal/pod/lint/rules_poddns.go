package lint

// podDNSRules check the DNS settings of Pods.
var podDNSRules = []Rule{
	{
		ID:        PodDNSRefused,
		Severity:  Error,
		Admission: true,
		Title:     "the API server refuses a Pod's DNS or hostname settings",
		Description: "The settings are invalid. For a workload, this shows only when its controller creates the first " +
			"Pod from the template.",
		Cure:   "correct the field that the message names",
		Source: pageDNS + ", “Pod's DNS Config”; " + kepPodDNS + ", “API changes”",
	},
	{
		ID:       PodDNSLimit,
		Severity: Warning,
		Title:    "nameservers or search domains of a Pod exceed the limits of Kubernetes",
		Description: "A Pod has at most 3 nameservers and 32 search domains, of at most 253 characters each and 2,048 " +
			"characters together. The kubelet drops the rest and emits an event.",
		Cure:   "remove what the Pod does not need",
		Source: pageDNS + ", “DNS search domain list limits” and “Pod's DNS Config”",
	},
	{
		ID:        PodDNSOlderLimit,
		Severity:  Warning,
		Admission: true,
		Title:     "a Pod's search domains or options exceed the limits of some resolvers or runtimes",
		Description: "Kubernetes allows them. Some resolvers ignore what exceeds their own limits, and old container " +
			"runtimes do not start the Pod.",
		Cure:   "remove what the Pod does not need",
		Source: pageDNS + ", “DNS search domain list limits”; resolv.conf(5)",
	},
	{ID: PodDNSOptionUnknown, Severity: Warning, Admission: true, Title: "an option in a Pod's dnsConfig has no effect",
		Description: "Resolvers silently ignore options that they do not know.",
		Cure:        "remove it, or spell it as in resolv.conf(5)",
		Source:      pageDNS + ", “Pod's DNS Config”; resolv.conf(5)"},
	{
		ID:          PodDNSOptionWithoutValue,
		Severity:    Warning,
		Admission:   true,
		Title:       "an option in a Pod's dnsConfig lacks its value",
		Description: "Options such as ndots have no effect without a number.",
		Cure:        "give it a value",
		Source:      "resolv.conf(5)",
	},
	{
		ID:        PodOptionZero,
		Severity:  Warning,
		Admission: true,
		Title:     "attempts or timeout is 0",
		Description: "musl, the libc of Alpine images, divides the timeout by the number of attempts. With attempts:0 " +
			"a program is killed at its first lookup (SIGFPE), and with timeout:0 musl sends no query. glibc and Go use " +
			"1 instead of 0.",
		Cure:   "set it to 1 or more",
		Source: "resolv.conf(5); musl 1.2.3, src/network/res_msend.c; verified in test/netns",
	},
	{ID: PodNdotsCapped, Severity: Note, Admission: true, Title: "ndots is higher than the maximum of resolvers",
		Description: "Resolvers use 15 for any higher value.",
		Cure:        "set it to 15 or less",
		Source:      "resolv.conf(5)"},
	{
		ID:       PodNdotsLow,
		Severity: Note,
		Title:    "with a low ndots, names of Services in other namespaces are not found, or found late",
		Description: "A name with at least ndots dots is looked up as given first. musl, the libc of Alpine images, " +
			"then does not try the search domains. glibc tries them after it got a response from outside the cluster.",
		Cure:   "set it to 2 or more, or use fully qualified names",
		Source: "resolv.conf(5); " + pageDNS + ", “Namespaces of Services”",
	},
	{
		ID:       PodManyQueries,
		Severity: Note,
		Title:    "each name outside the cluster costs many queries",
		Description: "A name with fewer than ndots dots is tried with each search domain first, for A and AAAA. The " +
			"rule considers what the Pod's own settings add to the defaults of ClusterFirst.",
		Cure:   "set the option ndots to 2, or write names outside the cluster with a trailing dot",
		Source: pageDNS + ", “Namespaces of Services”; resolv.conf(5)",
	},
	{
		ID:        PodNameserverSpelling,
		Severity:  Warning,
		Admission: true,
		Title:     "the address of a nameserver is not in canonical form",
		Description: "The API server warns about it. Software that compares addresses as text does not recognize the " +
			"address.",
		Cure:   "write it as in RFC 5952",
		Source: "RFC 5952, section 4",
	},
	{
		ID:       PodNameserversMixed,
		Severity: Warning,
		Title:    "a Pod has the cluster DNS and other nameservers",
		Description: "Resolvers expect all nameservers of the list to give the same answers. If one of the others " +
			"replies that a name of the cluster does not exist, the lookup ends: with musl whenever its reply arrives " +
			"first, with glibc whenever the nameserver before it is slow.",
		Cure:   "remove the others, and let the cluster DNS forward to them",
		Source: pageDNS + ", “Pod's DNS Config”; resolv.conf(5)",
	},
	{ID: PodNameserverNoDNS, Severity: Error, Title: "a nameserver is the cluster IP of a Service without UDP port 53",
		Description: "The Service is not a DNS server: nothing answers there.",
		Cure:        "use the address of a DNS server",
		Source:      pageDNS + ", “Pod's DNS Config”"},
	{
		ID:       PodSearchNowhere,
		Severity: Warning,
		Title:    "a search domain does not exist in the cluster",
		Description: "It looks like the domain of a namespace that does not exist, or like a domain of another " +
			"cluster. It never matches, and each lookup sends queries for it.",
		Cure:   "name an existing namespace, or use this cluster's domain",
		Source: pageDNS + ", “Namespaces of Services”",
	},
	{
		ID:        PodSearchRoot,
		Severity:  Warning,
		Admission: true,
		Title:     "the root is a search domain",
		Description: "glibc and Go treat it as the name as given. musl, the libc of Alpine images, makes a name with " +
			"an empty label of it, to which no server responds, so each lookup that reaches this search domain waits for " +
			"the timeout.",
		Cure:   "remove it: resolvers try a name as given without it",
		Source: "resolv.conf(5); musl 1.2.3, src/network/lookup_name.c; verified in test/netns",
	},
	{ID: PodPolicyUnknown, Severity: Warning, Admission: true, Title: "the API server does not accept a Pod's dnsPolicy",
		Description: "The policy exists only in a Kubernetes enhancement proposal (KEP).",
		Cure:        "use ClusterFirst, ClusterFirstWithHostNet, Default or None",
		Source:      kepPodDNS + "; KEP DNS Autopath in PodSpec"},
	{ID: PodPolicyDefault, Severity: Note, Title: "a Pod does not use the cluster DNS: dnsPolicy is Default",
		Description: "Despite its name, Default is not the default policy. It gives the Pod the node's resolv.conf.",
		Cure:        "use ClusterFirst, if the Pod needs names of the cluster",
		Source:      pageDNS + ", “Pod's DNS Policy”"},
	{ID: PodPolicyNoneElsewhere, Severity: Note, Title: "a Pod does not use the cluster DNS: dnsPolicy is None",
		Description: "With None a Pod has only the settings of its dnsConfig, and that does not name the cluster DNS.",
		Cure:        "use the address of the cluster DNS in dnsConfig, if the Pod needs names of the cluster",
		Source:      pageDNS + ", “Pod's DNS Policy”"},
	{
		ID:        PodHostNetworkPolicy,
		Severity:  Warning,
		Admission: true,
		Title:     "with hostNetwork, ClusterFirst acts as Default",
		Description: "A Pod with hostNetwork needs ClusterFirstWithHostNet to use the cluster DNS. With ClusterFirst " +
			"it gets the node's resolv.conf.",
		Cure:   "use ClusterFirstWithHostNet, or Default if the Pod needs no names of the cluster",
		Source: pageDNS + ", “Pod's DNS Policy”",
	},
	{ID: PodWindowsPolicy, Severity: Warning, Admission: true, Title: "a Windows Pod has ClusterFirstWithHostNet",
		Description: "This policy is not supported for Pods on Windows nodes.",
		Cure:        "remove hostNetwork and dnsPolicy",
		Source:      pageDNS + ", “DNS resolution on Windows nodes”"},
	{
		ID:       PodWindowsSearch,
		Severity: Note,
		Title:    "Windows uses only one search domain",
		Description: "A Windows Pod has the DNS suffix of its own namespace only: names such as SERVICE.NAMESPACE do " +
			"not resolve.",
		Cure:   "use fully qualified names in the Pod's programs",
		Source: pageDNS + ", “DNS resolution on Windows nodes”",
	},
	{ID: PodNoClusterDNS, Severity: Warning, Title: "the kubelet has no clusterDNS",
		Description: "Pods get the node's resolv.conf, and the kubelet emits an event.",
		Cure:        "set clusterDNS in the kubelet's configuration",
		Source:      kepPodDNS + "; " + pageDNS + ", “Pod's DNS Policy”"},
	{ID: PodNoClusterDomain, Severity: Warning, Title: "the kubelet has no clusterDomain",
		Description: "Pods get no search domains of the cluster: short names of Services do not resolve.",
		Cure:        "set clusterDomain in the kubelet's configuration",
		Source:      kepPodDNS},
}
