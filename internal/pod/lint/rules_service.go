package lint

// serviceRules check Services.
var serviceRules = []Rule{
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
		ID:        LoadBalancerIPsInvalid,
		Severity:  Error,
		Admission: true,
		Title:     "a Service requests what cannot be its load balancer's addresses",
		Description: "The annotation portolan.dev/load-balancer-ips has one IP address, or one of each family, separated " +
			"by a comma. With another value the Service gets no address, also from other pools.",
		Cure:   "set one address, or one of each family",
		Source: "docs/controller.md, “Addresses of load balancers”",
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
}
