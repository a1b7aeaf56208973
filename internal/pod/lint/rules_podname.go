package lint

// podNameRules check the names of Pods, and the names that Pods look up.
var podNameRules = []Rule{
	{
		ID:        PodBandwidthInvalid,
		Severity:  Error,
		Admission: true,
		Title:     "a Pod does not start, because its limit of bandwidth is invalid",
		Description: "The annotations kubernetes.io/ingress-bandwidth and kubernetes.io/egress-bandwidth are quantities of " +
			"bits per second from 1k to 1P, such as 10M. The API server takes any value; the container runtime reads it, and " +
			"does not start a Pod with another one.",
		Cure:   "set a bandwidth such as 10M, or remove the annotation",
		Source: "Network Plugins, “Support traffic shaping”",
	},
	{
		ID:        PodHostnameCut,
		Severity:  Warning,
		Admission: true,
		Title:     "a Pod's hostname exceeds 63 characters",
		Description: "A hostname has at most 63 characters. The kubelet truncates a longer one, and two Pods may then " +
			"have the same hostname.",
		Cure:   "set a shorter hostname",
		Source: pageDNS + ", “Pod's hostname and subdomain fields”; RFC 1123, section 2.1",
	},
	{ID: PodHostnameShared, Severity: Warning, Title: "several Pods have the same hostname and subdomain",
		Description: "The name that each Pod has as its own FQDN resolves to all of them.",
		Cure:        "remove the hostname, or use a StatefulSet, which gives each Pod its own",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{
		ID:        PodFQDNTooLong,
		Severity:  Error,
		Admission: true,
		Title:     "a Pod does not start, because its FQDN exceeds 64 characters",
		Description: "With setHostnameAsFQDN the FQDN becomes the hostname in the kernel, which Linux limits to 64 " +
			"characters. The Pod stays Pending.",
		Cure:   "shorten the hostname, the subdomain or the namespace, or remove setHostnameAsFQDN",
		Source: pageDNS + ", “Pod's setHostnameAsFQDN field”",
	},
	{ID: PodFQDNNoEffect, Severity: Warning, Admission: true, Title: "setHostnameAsFQDN has no effect",
		Description: "A Pod without a subdomain, or with hostNetwork, has no FQDN to use as its hostname.",
		Cure:        "remove setHostnameAsFQDN, or set a subdomain and remove hostNetwork",
		Source:      pageDNS + ", “Pod's setHostnameAsFQDN field”"},
	{
		ID:       PodSubdomainNoService,
		Severity: Error,
		Title:    "no Service has the name of a Pod's subdomain",
		Description: "The FQDN of a Pod with a subdomain is HOSTNAME.SUBDOMAIN.NAMESPACE.svc and the cluster domain. " +
			"It resolves only if a headless Service named SUBDOMAIN selects the Pod.",
		Cure:   "create a headless Service of that name that selects the Pod",
		Source: pageDNS + ", “Pod's hostname and subdomain fields”",
	},
	{
		ID:       PodSubdomainNotHeadless,
		Severity: Warning,
		Title:    "the Service of a Pod's subdomain is not headless",
		Description: "The specification defines names of Pods under headless Services only. Some DNS servers answer " +
			"them under other Services, too.",
		Cure:   "set clusterIP: None in the Service",
		Source: pageDNS + ", “Pod's hostname and subdomain fields”",
	},
	{ID: PodSubdomainNotSelected, Severity: Error, Title: "the Service of a Pod's subdomain does not select the Pod",
		Description: "Only endpoints of the Service have names under it.",
		Cure:        "give the Pod the labels of the Service's selector",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{
		ID:       PodSubdomainNoHostname,
		Severity: Warning,
		Title:    "a Pod has a subdomain and no hostname",
		Description: "Its endpoint has no hostname. The Pod's addresses are among those of the Service, and the Pod " +
			"has no record of its own.",
		Cure:   "set hostname",
		Source: pageDNS + ", “Pod's hostname and subdomain fields”",
	},
	{ID: StatefulSetNoService, Severity: Warning, Title: "a StatefulSet has no serviceName",
		Description: "The Pods of a StatefulSet have stable names only under the Service that serviceName names.",
		Cure:        "create a headless Service, and set serviceName to its name",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{
		ID:       StatefulSetServiceMissing,
		Severity: Error,
		Title:    "the Service of a StatefulSet does not exist",
		Description: "The names of the Pods, POD.SERVICE, are under the Service that serviceName names. The API " +
			"server does not verify that it exists.",
		Cure:   "correct serviceName, or create a headless Service of that name that selects the Pods",
		Source: pageDNS + ", “Pod's hostname and subdomain fields”",
	},
	{
		ID:       StatefulSetServiceNotHeadless,
		Severity: Warning,
		Title:    "the Service of a StatefulSet is not headless",
		Description: "The specification defines names of Pods under headless Services only. Some DNS servers answer " +
			"them under other Services, too.",
		Cure:   "set clusterIP: None in the Service",
		Source: pageDNS + ", “Pod's hostname and subdomain fields”",
	},
	{ID: StatefulSetServiceNotSelecting, Severity: Error, Title: "the Service of a StatefulSet does not select its Pods",
		Description: "Only endpoints of the Service have names under it.",
		Cure:        "set the Service's selector to labels of the template",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{
		ID:       PodNameMissingService,
		Severity: Warning,
		Title:    "the environment or the arguments of a container name a Service that does not exist",
		Description: "Names of the form SERVICE.NAMESPACE.svc in env, command and args are looked up as the program would. " +
			"Values from ConfigMaps and Secrets are not read. Names with variables or formats and file names in paths are " +
			"left out, and so are names in another domain, unless it is plainly a misspelling of the cluster domain. In " +
			"manifests, a name in a namespace without any known Service is left out, too.",
		Cure:   "correct the name, or create the Service",
		Source: specification + ", section 2.3",
	},
}
