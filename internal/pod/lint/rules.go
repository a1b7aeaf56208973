package lint

// Rule describes one kind of problem. Its texts are plain text without markup.
type Rule struct {
	// ID identifies the rule in flags, annotations and output. It never changes.
	ID string
	// Severity is that of most findings; some have another one.
	Severity Severity
	// Admission reports whether the rule needs only the object itself, so that it
	// can be checked before the object is in the cluster.
	Admission bool
	// Title is what the rule finds: one clause, without a full stop.
	Title string
	// Description is why it matters: one or more sentences.
	Description string
	// Cure is how it is fixed: one imperative clause, without a full stop.
	Cure string
	// Source is the specification or page that the rule follows.
	Source string
}

// The IDs of the rules.
const (
	ServiceSelectsNoPod            = "service-selects-no-pod"
	ServiceNoReadyEndpoint         = "service-no-ready-endpoint"
	ServiceNoEndpoints             = "service-no-endpoints"
	ServiceScaledToZero            = "service-scaled-to-zero"
	ServiceFamilyNoEndpoint        = "service-family-no-endpoint"
	ServicePortNames               = "service-port-names"
	ServicePortUnnamed             = "service-port-unnamed"
	ServiceTargetPortMissing       = "service-target-port-missing"
	ServiceTargetPortUnlisted      = "service-target-port-unlisted"
	ServiceHidesNamespace          = "service-hides-namespace"
	HeadlessPortTranslated         = "headless-port-translated"
	ClusterIPShared                = "cluster-ip-shared"
	ExternalIPShared               = "external-ip-shared"
	ExternalIPIsClusterIP          = "external-ip-is-cluster-ip"
	ExternalIPOfNode               = "external-ip-of-node"
	ServiceLocalPolicyNodes        = "service-local-policy-nodes"
	ServiceSourceRangesUnused      = "service-source-ranges-unused"
	ProxyAnnotationInvalid         = "proxy-annotation-invalid"
	ExternalNameAddress            = "externalname-address"
	ExternalNameUnqualified        = "externalname-unqualified"
	ExternalNameLoop               = "externalname-loop"
	ExternalNameMissingService     = "externalname-missing-service"
	ExternalNameSelector           = "externalname-selector"
	EndpointSliceNoService         = "endpointslice-no-service"
	EndpointSliceOrphan            = "endpointslice-orphan"
	EndpointSlicePortMismatch      = "endpointslice-port-mismatch"
	EndpointSliceFQDN              = "endpointslice-fqdn"
	EndpointAddressForbidden       = "endpoint-address-forbidden"
	EndpointIsClusterIP            = "endpoint-is-cluster-ip"
	EndpointHostnameShared         = "endpoint-hostname-shared"
	NamespaceIsTLD                 = "namespace-is-tld"
	NamespaceNamedSvc              = "namespace-named-svc"
	DNSServiceMissing              = "dns-service-missing"
	DNSServicePorts                = "dns-service-ports"
	DNSServiceNoEndpoint           = "dns-service-no-endpoint"
	PodDNSRefused                  = "pod-dns-refused"
	PodDNSLimit                    = "pod-dns-limit"
	PodDNSOlderLimit               = "pod-dns-older-limit"
	PodDNSOptionUnknown            = "pod-dns-option-unknown"
	PodDNSOptionWithoutValue       = "pod-dns-option-without-value"
	PodNdotsCapped                 = "pod-ndots-capped"
	PodNdotsLow                    = "pod-ndots-low"
	PodManyQueries                 = "pod-many-queries"
	PodNameserverSpelling          = "pod-nameserver-spelling"
	PodNameserversMixed            = "pod-nameservers-mixed"
	PodNameserverNoDNS             = "pod-nameserver-no-dns"
	PodSearchNowhere               = "pod-search-nowhere"
	PodSearchRoot                  = "pod-search-root"
	PodOptionZero                  = "pod-option-zero"
	PodPolicyUnknown               = "pod-policy-unknown"
	PodPolicyDefault               = "pod-policy-default"
	PodPolicyNoneElsewhere         = "pod-policy-none-elsewhere"
	PodHostNetworkPolicy           = "pod-host-network-policy"
	PodWindowsPolicy               = "pod-windows-policy"
	PodWindowsSearch               = "pod-windows-search"
	PodNoClusterDNS                = "pod-no-cluster-dns"
	PodNoClusterDomain             = "pod-no-cluster-domain"
	PodHostnameCut                 = "pod-hostname-cut"
	PodHostnameShared              = "pod-hostname-shared"
	PodFQDNTooLong                 = "pod-fqdn-too-long"
	PodFQDNNoEffect                = "pod-fqdn-no-effect"
	PodSubdomainNoService          = "pod-subdomain-no-service"
	PodSubdomainNotHeadless        = "pod-subdomain-not-headless"
	PodSubdomainNotSelected        = "pod-subdomain-not-selected"
	PodSubdomainNoHostname         = "pod-subdomain-no-hostname"
	StatefulSetNoService           = "statefulset-no-service"
	StatefulSetServiceMissing      = "statefulset-service-missing"
	StatefulSetServiceNotHeadless  = "statefulset-service-not-headless"
	StatefulSetServiceNotSelecting = "statefulset-service-not-selecting"
	PodNameMissingService          = "pod-name-missing-service"
	IngressBackendMissing          = "ingress-backend-missing"
	NetworkPolicyPeerMissing       = "network-policy-peer-missing"
	NetworkPolicyBlocksDNS         = "network-policy-blocks-dns"
	NetworkPolicyDNSOverTCP        = "network-policy-dns-over-tcp"
)

// IgnoreAnnotation is an annotation of objects in manifests with the IDs of the
// rules to ignore for the object, separated by commas. In a Pod template it
// applies to findings about the template's Pods.
const IgnoreAnnotation = "portolan.dev/ignore-rules"

// The IDs of the rules for problems that the manifest source reports.
const (
	ManifestRejected = "manifest-rejected"
	ManifestWarning  = "manifest-warning"
)

// ManifestRules returns the rules ManifestRejected and ManifestWarning.
func ManifestRules() []Rule {
	return []Rule{
		{ID: ManifestRejected, Severity: Error, Title: "a document is rejected",
			Description: "The object is left out. If an earlier version of it was valid, that version stays in use.",
			Cure:        "correct the document",
			Source:      "the Kubernetes API"},
		{
			ID:       ManifestWarning,
			Severity: Warning,
			Title:    "a part of a document is ignored",
			Description: "The document has an unknown field, version or kind, is a template that must be rendered first, " +
				"or declares an object a second time.",
			Cure:   "correct the document, or render the template first",
			Source: "the Kubernetes API",
		},
	}
}

// The sources of rules.
const (
	specification  = "Kubernetes DNS-Based Service Discovery 1.1.0"
	pageDNS        = "DNS for Services and Pods"
	pageService    = "Service"
	pageSlices     = "EndpointSlices"
	pagePolicies   = "Network Policies"
	pageIngress    = "Ingress"
	pageDualStack  = "IPv4/IPv6 dual-stack"
	kepPodDNS      = "KEP Configurable Pod DNS"
	headlessRecord = specification + ", section 2.4"
)

// Rules returns all rules, grouped by the kind of object that they check.
func Rules() []Rule { return append([]Rule(nil), rules...) }

// severities has the severity of each rule by its ID.
var severities = func() map[string]Severity {
	all := make(map[string]Severity, len(rules))
	for _, r := range rules {
		all[r.ID] = r.Severity
	}
	return all
}()

var rules = []Rule{
	{
		ID:       ServiceSelectsNoPod,
		Severity: Error,
		Title:    "a Service selects no Pod",
		Description: "No Pod and no workload template in the Service's namespace has the labels of the Service's " +
			"selector, so the Service has no endpoints: the name of a headless Service does not exist, and nothing " +
			"answers at a cluster IP. It is an error where the labels of a Pod or template differ by what looks like a " +
			"typo. Otherwise it is a warning, because the Pods may be defined in manifests that were not read, or get " +
			"the label while they run.",
		Cure:   "set spec.selector to labels that the Pods have",
		Source: pageService + ", “Defining a Service”; " + headlessRecord,
	},
	{
		ID:       ServiceNoReadyEndpoint,
		Severity: Warning,
		Title:    "a Service has endpoints, and none of them is ready",
		Description: "Records contain ready endpoints only, unless the Service sets publishNotReadyAddresses. It is a " +
			"warning because it ends when a Pod becomes ready. The message has the condition that keeps one of the Pods " +
			"from being ready.",
		Cure:   "find out why the Pods are not ready, or set spec.publishNotReadyAddresses",
		Source: specification + ", sections 2.1 and 2.4.1; " + pageDNS + ", “Pod's hostname and subdomain fields”",
	},
	{
		ID:       ServiceNoEndpoints,
		Severity: Warning,
		Title:    "a Service without a selector has no endpoints",
		Description: "The control plane creates EndpointSlices only for Services that have a selector. For a Service " +
			"without one, you or a controller of yours must create them.",
		Cure:   "add a selector, or create an EndpointSlice for the Service",
		Source: pageService + ", “Services without selectors”",
	},
	{ID: ServiceScaledToZero, Severity: Warning, Title: "every workload that a Service selects has 0 replicas",
		Description: "The selector matches, and the Service gets an endpoint only when a workload is scaled up.",
		Cure:        "scale the workload to 1 replica or more",
		Source:      headlessRecord + ".1"},
	{
		ID:       ServiceFamilyNoEndpoint,
		Severity: Warning,
		Title:    "a Service has a cluster IP of a family in which it has no ready endpoint",
		Description: "The name has records of both families and the client chooses one, usually IPv6. Nothing answers " +
			"at the address of the family without endpoints.",
		Cure:   "give the Pods addresses of both families, or set spec.ipFamilies to one family",
		Source: pageDualStack + ", “Services”",
	},
	{
		ID:        ServicePortNames,
		Severity:  Error,
		Admission: true,
		Title:     "ports of a Service have no unique names",
		Description: "A Service with several ports must name each of them, and no two alike. EndpointSlices and SRV " +
			"records refer to ports by name.",
		Cure:   "give each port a unique name",
		Source: pageService + ", “Multi-port Services”",
	},
	{ID: ServicePortUnnamed, Severity: Note, Admission: true, Title: "a port of a Service has no name",
		Description: "A port without a name has no SRV record _PORT._PROTOCOL.SERVICE.",
		Cure:        "name the port, for example http",
		Source:      specification + ", sections 2.3.2 and 2.4.2"},
	{
		ID:       ServiceTargetPortMissing,
		Severity: Error,
		Title:    "a Service's targetPort is a name that no container port has",
		Description: "A targetPort that is a name refers to a container port of that name and of the same protocol. A " +
			"Pod without such a port is no endpoint for the Service's port.",
		Cure:   "name the container port accordingly, or set targetPort to its number",
		Source: pageService + ", “Port definitions”",
	},
	{
		ID:       ServiceTargetPortUnlisted,
		Severity: Note,
		Title:    "a Service's targetPort is a number that its Pods do not list",
		Description: "Containers need not list their ports. Where all Pods list ports and this one is missing, it is " +
			"often a mistake.",
		Cure:   "set targetPort to the port on which the program listens, or add that port to the container's ports",
		Source: pageService + ", “Port definitions”",
	},
	{
		ID:       ServiceHidesNamespace,
		Severity: Warning,
		Title:    "an endpoint hides a Service of another namespace",
		Description: "A Pod's search list begins with the Pod's own namespace. If that namespace has a Service with " +
			"the name of another namespace, HOST.NAME resolves to an endpoint of the Service NAME instead of the Service " +
			"HOST in the namespace NAME.",
		Cure:   "rename the Service, or use HOST.NAME.svc in that namespace",
		Source: pageDNS + ", “Namespaces of Services”",
	},
	{
		ID:       HeadlessPortTranslated,
		Severity: Warning,
		Title:    "a headless Service has a targetPort that differs from port",
		Description: "The name of a headless Service resolves to the Pods themselves, and no proxy translates port to " +
			"targetPort. Clients that use SRV records get the Pods' port. Clients that use the port of the Service are refused.",
		Cure:   "set port to the target port, or give the Service a cluster IP",
		Source: pageService + ", “Headless Services”",
	},
	{ID: ClusterIPShared, Severity: Error, Title: "two Services have the same cluster IP",
		Description: "A cluster IP is assigned once. The API server refuses a second Service with the same one.",
		Cure:        "leave clusterIP out, so that the cluster assigns one",
		Source:      pageService + ", “Choosing your own IP address”"},
	{
		ID:       ExternalIPShared,
		Severity: Warning,
		Title:    "two Services have the same external IP, or load balancer's address, and port",
		Description: "Service proxies send the connections at an external IP, or an address of a load balancer, and a port " +
			"to one Service. The other one is not reached there.",
		Cure:   "give one of the Services another address or port",
		Source: pageService + ", “External IPs”",
	},
	{
		ID:       ExternalIPIsClusterIP,
		Severity: Warning,
		Title:    "an external IP, or a load balancer's address, is the cluster IP of another Service",
		Description: "Both Services take connections at the address, on every node. At a port that both have, other " +
			"proxies may give them to either, so that a Service can intercept the connections of another one (CVE-2020-8554); " +
			"Portolan gives them to the one whose cluster IP it is.",
		Cure:   "use an address that no other Service has",
		Source: pageService + ", “External IPs”",
	},
	{
		ID:       ExternalIPOfNode,
		Severity: Note,
		Title:    "an external IP or a cluster IP is an address of a node",
		Description: "Every node takes the connections to the address and the Service's ports for the Service. Programs " +
			"that listen there, such as SSH servers and kubelets, are not reached. With a cluster IP it is an error: " +
			"service proxies may refuse connections to its other ports, too. Addresses of load balancers may be those of nodes.",
		Cure:   "use an address that no node has, or, instead of an external IP, type NodePort",
		Source: pageService + ", “External IPs”",
	},
	{
		ID:       ServiceLocalPolicyNodes,
		Severity: Warning,
		Title:    "a traffic policy is Local, and nodes have no endpoint",
		Description: "With internalTrafficPolicy: Local, Pods reach the Service only on nodes that have a ready " +
			"endpoint. With externalTrafficPolicy: Local, so do clients outside whose connections arrive there. For a load " +
			"balancer, which checks nodes at healthCheckNodePort, it is a note. Nodes of the control plane, and those that " +
			"are not ready or leave, do not count.",
		Cure:   "set the policy to Cluster, or run a Pod of the Service on each node",
		Source: pageService + ", “Traffic policies”",
	},
	{
		ID:       ServiceSourceRangesUnused,
		Severity: Error,
		Title:    "loadBalancerSourceRanges of a Service without a load balancer",
		Description: "The ranges limit the clients of load balancers only. The API server refuses " +
			"them in a Service of another type.",
		Cure:   "set the type to LoadBalancer, or use a NetworkPolicy",
		Source: pageService + ", “type: LoadBalancer”",
	},
	{
		ID:        ProxyAnnotationInvalid,
		Severity:  Warning,
		Admission: true,
		Title:     "an annotation for the service proxy has an invalid value",
		Description: "The proxy ignores the value, and does what it does without the annotation. In a Service, " +
			"portolan.dev/endpoint-choice is random, client-hash or connection-hash, and portolan.dev/slow-start a duration " +
			"from 0s to 1h. In an EndpointSlice, portolan.dev/endpoint-weight is a number from 0 to 1000.",
		Cure:   "set a value that is allowed, or remove the annotation",
		Source: "docs/proxy.md, “Which endpoint”",
	},
	{
		ID:        ExternalNameAddress,
		Severity:  Error,
		Admission: true,
		Title:     "the target of an ExternalName Service is an IP address",
		Description: "An ExternalName is a DNS name. A target that looks like an IP address is a name that does not " +
			"resolve. To give an address a name, use a headless Service without a selector and an EndpointSlice.",
		Cure:   "use a headless Service without a selector, and an EndpointSlice with the address",
		Source: pageService + ", “type: ExternalName”",
	},
	{
		ID:        ExternalNameUnqualified,
		Severity:  Error,
		Admission: true,
		Title:     "the target of an ExternalName Service is not a fully qualified name",
		Description: "The target becomes that of a CNAME record. Resolvers do not apply their search list to it, so a " +
			"Service of the cluster needs its full name, SERVICE.NAMESPACE.svc and the cluster domain.",
		Cure:   "write the fully qualified name",
		Source: specification + ", section 2.5",
	},
	{ID: ExternalNameLoop, Severity: Error, Title: "ExternalName Services form a loop",
		Description: "Each of the Services is an alias of the next, and the last one of the first. None of them resolves.",
		Cure:        "point one of them to the Service that is meant",
		Source:      specification + ", section 2.5; RFC 1034, section 3.6.2"},
	{
		ID:       ExternalNameMissingService,
		Severity: Error,
		Title:    "the target of an ExternalName Service does not exist in the cluster",
		Description: "The target ends with the cluster domain, and no such Service exists. If its namespace does not " +
			"exist either it is a warning, because its manifests may not have been read.",
		Cure:   "name an existing Service",
		Source: specification + ", section 2.5",
	},
	{ID: ExternalNameSelector, Severity: Warning, Admission: true, Title: "an ExternalName Service has a selector",
		Description: "A Service of this type is an alias: it has no endpoints, and its selector has no effect.",
		Cure:        "remove the selector, or the type ExternalName",
		Source:      pageService + ", “type: ExternalName”"},
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
	{
		ID:       IngressBackendMissing,
		Severity: Error,
		Title:    "an Ingress sends requests to a Service, or a port of one, that does not exist",
		Description: "The backends of an Ingress are Services of its namespace, and their ports have the name or the " +
			"number that the Service gives them, not that of the containers. Controllers answer requests for any other " +
			"with an error. In manifests, a missing Service is a warning unless one of a similar name exists, because it " +
			"may be in manifests that were not read, and it is left out in a namespace without any known Service. Ports " +
			"of ExternalName Services, and the port use-annotation of the AWS Load Balancer Controller, are not checked.",
		Cure:   "name a Service of the namespace, and one of its ports",
		Source: pageIngress + ", “The Ingress resource”",
	},
	{
		ID:       NetworkPolicyPeerMissing,
		Severity: Warning,
		Title:    "a NetworkPolicy allows a namespace that does not exist",
		Description: "A namespaceSelector names one namespace by the label kubernetes.io/metadata.name, and there is none " +
			"of that name: the rule allows nothing. In manifests, the rule needs a namespace with a similar name.",
		Cure:   "correct the name",
		Source: pagePolicies + ", “Targeting a Namespace by its name”",
	},
	{
		ID:       NetworkPolicyBlocksDNS,
		Severity: Error,
		Title:    "NetworkPolicies keep a Pod from reaching the cluster DNS",
		Description: "A Pod that a policy selects for egress may open only the connections that some policy allows, " +
			"and DNS is one of them. Policies that select the DNS Pods for ingress must allow it, too. A policy is " +
			"evaluated for the labels and the container port of the DNS Pods, and that port need not be 53. " +
			"Network plugins differ in whether an ipBlock is compared with the cluster IP or with the Pod's address: a " +
			"block that covers either counts as allowing. Each policy is reported once; if several policies apply to a " +
			"Pod, the one with the nearest rule is reported. " +
			"If the Service of the cluster DNS is not known, its Pods are assumed to have the label k8s-app: kube-dns in " +
			"the namespace kube-system. In that case, and where Pods use another address than the Service's, a rule for " +
			"port 53 or 5353, or for all ports of Pods in other namespaces, may be meant for the DNS and makes it a " +
			"warning. Only NetworkPolicies of networking.k8s.io are evaluated.",
		Cure:   "allow egress to, and ingress from the Pod's namespace at, UDP and TCP port 53 of the DNS Pods",
		Source: pagePolicies + ", “The two sorts of Pod isolation” and “Behavior of to and from selectors”",
	},
	{
		ID:       NetworkPolicyDNSOverTCP,
		Severity: Warning,
		Title:    "NetworkPolicies let a Pod reach the cluster DNS over UDP, not over TCP",
		Description: "A response that does not fit a UDP packet is truncated, and the client repeats the query over " +
			"TCP. Without TCP, large responses are lost.",
		Cure:   "allow TCP port 53 beside UDP port 53",
		Source: "RFC 7766, section 5; " + pagePolicies + ", “The two sorts of Pod isolation”",
	},
}
