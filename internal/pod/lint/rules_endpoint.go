package lint

// endpointRules check EndpointSlices, Namespaces and the cluster DNS.
var endpointRules = []Rule{
	{
		ID:        EndpointSliceNoService,
		Severity:  Warning,
		Admission: true,
		Title:     "an EndpointSlice belongs to no Service",
		Description: "The label kubernetes.io/service-name says to which Service an EndpointSlice belongs. An " +
			"EndpointSlice without it is not used.",
		Cure:   "add the label kubernetes.io/service-name",
		Source: pageSlices + ", “Ownership”; " + pageService + ", “Services without selectors”",
	},
	{
		ID:       EndpointSliceOrphan,
		Severity: Warning,
		Title:    "an EndpointSlice belongs to a Service that does not exist",
		Description: "The label kubernetes.io/service-name names a Service of the EndpointSlice's namespace, and " +
			"there is none of that name.",
		Cure:   "correct the label, or delete the EndpointSlice",
		Source: pageSlices + ", “Ownership”",
	},
	{
		ID:       EndpointSlicePortMismatch,
		Severity: Error,
		Title:    "the ports of an EndpointSlice do not match those of its Service",
		Description: "The ports of a Service and of its EndpointSlices are matched by name and protocol. A port of " +
			"the Service that the EndpointSlice lacks has no endpoint there. For a headless Service it is a warning: " +
			"only SRV records use the port names, and they have those of the EndpointSlice.",
		Cure:   "give the EndpointSlice's port the name and protocol that it has in the Service",
		Source: pageService + ", “Services without selectors”",
	},
	{ID: EndpointSliceFQDN, Severity: Warning, Admission: true, Title: "an EndpointSlice has the address type FQDN",
		Description: "The DNS specification defines no records for the address type FQDN.",
		Cure:        "use IP addresses, or a Service of type ExternalName",
		Source:      headlessRecord + ".1"},
	{
		ID:          EndpointAddressForbidden,
		Severity:    Error,
		Admission:   true,
		Title:       "an endpoint has a loopback, link-local or unspecified address",
		Description: "Such an address means a different host on each client. The API server refuses it.",
		Cure:        "use addresses that every Pod can reach",
		Source:      pageService + ", “Services without selectors”",
	},
	{ID: EndpointIsClusterIP, Severity: Error, Title: "an endpoint is the cluster IP of a Service",
		Description: "kube-proxy does not support virtual IPs as destinations.",
		Cure:        "use the endpoints of that Service, or a Service of type ExternalName",
		Source:      pageService + ", “Services without selectors”"},
	{
		ID:       EndpointHostnameShared,
		Severity: Warning,
		Title:    "two endpoints of a Service have the same hostname",
		Description: "The name HOSTNAME.SERVICE has the addresses of both. A client that wants one Pod gets the other " +
			"half of the time.",
		Cure:   "give each endpoint its own hostname",
		Source: headlessRecord + ".1",
	},
	{
		ID:       NamespaceIsTLD,
		Severity: Note,
		Title:    "a namespace is named like a top-level domain",
		Description: "Pods search svc.DOMAIN before they look up a name with few dots as given, so SERVICE.NAMESPACE " +
			"hides the same name on the internet.",
		Cure:   "rename the namespace, or write names on the internet with a trailing dot",
		Source: pageDNS + ", “Namespaces of Services”",
	},
	{
		ID:        NamespaceNamedSvc,
		Severity:  Warning,
		Admission: true,
		Title:     "a namespace is named svc or pod",
		Description: "The search domain svc.DOMAIN comes before DOMAIN. SERVICE.NAMESPACE.svc is therefore looked up " +
			"in this namespace first, as the endpoint SERVICE of a Service NAMESPACE.",
		Cure:   "rename the namespace",
		Source: pageDNS + ", “Namespaces of Services”",
	},
	{
		ID:       DNSServiceMissing,
		Severity: Warning,
		Title:    "the Service of the cluster DNS does not exist",
		Description: "Pods send their queries to the cluster IP of that Service. It is kube-system/kube-dns in most " +
			"clusters, whichever DNS server runs behind it. The rule does not apply where no object of that namespace is known.",
		Cure:   "create the Service with UDP and TCP port 53, or name another one in the setting dns.nameServer.service",
		Source: pageService + ", “Discovering services”",
	},
	{ID: DNSServicePorts, Severity: Error, Title: "the Service of the cluster DNS lacks UDP or TCP port 53",
		Description: "Clients send queries over UDP, and over TCP when a response does not fit a UDP packet.",
		Cure:        "add the missing port",
		Source:      "RFC 7766, section 5; RFC 1035, section 4.2"},
	{
		ID:       DNSServiceNoEndpoint,
		Severity: Error,
		Title:    "the Service of the cluster DNS has no ready endpoint",
		Description: "Pods send their queries to the cluster IP of that Service, and nothing answers there: no name " +
			"resolves in any Pod. A selector that lists the labels of two DNS servers at once, as after applying the " +
			"Service of one over that of the other, selects the Pods of neither. In manifests, the rule needs a Pod or a " +
			"workload of the Service's namespace.",
		Cure:   "set the selector to the labels of the DNS server's Pods, or find out why they are not ready",
		Source: pageService + ", “Defining a Service”; " + pageDNS,
	},
}
