package lint

// ingressRules check Ingresses.
var ingressRules = []Rule{
	{
		ID:       IngressBackendMissing,
		Severity: Error,
		Title:    "an Ingress sends requests to a Service, or a port of one, that does not exist",
		Description: "The backends of an Ingress are Services of its namespace, and their ports have the name or the " +
			"number that the Service gives them, not that of the containers. Controllers answer requests for any other " +
			"with an error. In manifests, a missing Service is a warning unless one of a similar name exists, because " +
			"it may be in manifests that were not read, and it is left out in a namespace without any known Service. " +
			"Ports of ExternalName Services, and the port use-annotation of the AWS Load Balancer Controller, are not checked.",
		Cure:   "name a Service of the namespace, and one of its ports",
		Source: pageIngress + ", “The Ingress resource”",
	},
	{
		ID:       IngressClassUnserved,
		Severity: Error,
		Title:    "nobody serves the class of an Ingress",
		Description: "An Ingress is served by the controller of its IngressClass, and of one that does not exist by " +
			"nobody. Without ingressClassName it has the class that is the default; several defaults are an error, and " +
			"without a default only controllers serve it that also take Ingresses of no class, which makes it a " +
			"warning. So does a class in the old annotation kubernetes.io/ingress.class, which some controllers know " +
			"without an IngressClass. In manifests, the rule needs an IngressClass of a similar name, or two defaults.",
		Cure:   "name an IngressClass that exists in ingressClassName",
		Source: pageIngress + ", “Ingress class” and “Default IngressClass”",
	},
	{
		ID:       IngressTLSHost,
		Severity: Warning,
		Title:    "an Ingress has a certificate for a host that none of its rules has",
		Description: "Hosts in tls must be those of rules: clients of such a host get a certificate and then 404, " +
			"and the host of the rule that was meant may have no certificate.",
		Cure:   "write the same hosts in spec.tls and in spec.rules",
		Source: pageIngress + ", “TLS”",
	},
}

// gatewayRules check Gateways, ListenerSets and HTTPRoutes, and some of them Ingresses, too.
var gatewayRules = []Rule{
	{
		ID:       GatewayClassUnserved,
		Severity: Error,
		Title:    "nobody serves the class of a Gateway",
		Description: "A Gateway is served by the controller of its GatewayClass. If the class does not exist, nobody " +
			"does. If no controller has accepted the class, the controller may not be installed, or not run: that is a " +
			"warning. In manifests, the rule needs a GatewayClass of a similar name.",
		Cure:   "name a GatewayClass that exists, and install its controller",
		Source: gatewayAPI + ", GatewayClass",
	},
	{
		ID:       ListenerConflict,
		Severity: Error,
		Title:    "a listener is not served because another one has its port",
		Description: "Of a port, each hostname can have one listener, and all have one protocol. Of listeners of one " +
			"Gateway that conflict none is served; otherwise that of the Gateway comes before those of ListenerSets, " +
			"and older ones first. With the gateway of Portolan, Gateways without addresses of their own share the " +
			"ports, also with Ingresses.",
		Cure:   "give the listener another port or hostname",
		Source: gatewayAPI + ", GatewaySpec.listeners and ListenerSet",
	},
	{
		ID:       ListenerSetNotAllowed,
		Severity: Error,
		Title:    "a ListenerSet adds to a Gateway that does not allow it, or does not exist",
		Description: "A Gateway allows no ListenerSets unless its allowedListeners select their namespaces: the " +
			"listeners are not served. In manifests, a Gateway that does not exist is not reported.",
		Cure:   "let spec.allowedListeners of the Gateway select the namespace",
		Source: gatewayAPI + ", GatewaySpec.allowedListeners",
	},
	{
		ID:       RouteNotAccepted,
		Severity: Error,
		Title:    "a parent of an HTTPRoute does not accept it, or does not exist",
		Description: "A route is served only by listeners that accept it: they must have the name and port of the " +
			"parentRef, allow routes from the namespace, and have a hostname in common with it. If another parent " +
			"accepts the route, it is a warning. In manifests, a parent that does not exist is not reported, unless " +
			"one of a similar name does, and it is a warning if the labels of the namespace decide, which the cluster may have.",
		Cure:   "correct the parentRef or the hostnames, or let the listener allow the route",
		Source: gatewayAPI + ", AllowedRoutes and ParentReference",
	},
	{
		ID:       RouteBackendMissing,
		Severity: Error,
		Title:    "an HTTPRoute sends requests to a Service, or a port of one, that does not exist",
		Description: "The requests for such a backend are answered with 500, in proportion to its weight. In " +
			"manifests, a missing Service is a warning unless one of a similar name exists, because it may be in " +
			"manifests that were not read, and it is left out in a namespace without any known Service.",
		Cure:   "name a Service that exists, and one of its ports",
		Source: gatewayAPI + ", HTTPRouteRule.backendRefs",
	},
	{
		ID:       ReferenceGrantMissing,
		Severity: Error,
		Title:    "a reference to another namespace is not allowed by a ReferenceGrant there",
		Description: "Backends and certificates in other namespaces need a ReferenceGrant in these, which names the " +
			"kind and the namespace that the reference comes from. Without it requests for a backend are answered with " +
			"500, and a listener has no certificate. In manifests, the rule needs the object that is referred to.",
		Cure:   "create a ReferenceGrant in the namespace that is referred to",
		Source: gatewayAPI + ", ReferenceGrant",
	},
	{
		ID:       RouteShadowed,
		Severity: Warning,
		Title:    "a rule never serves a request, because another one has the same match",
		Description: "Of equal matches of a host, that of the older route or Ingress serves all requests, and of one " +
			"route that of the first rule. No status says so. Manifests have no age: there, files and the order of " +
			"their documents decide. Ingresses are compared within their class, without those of ingress-nginx that " +
			"are canaries, and without paths of type ImplementationSpecific.",
		Cure:   "change the match, or remove one of the rules",
		Source: gatewayAPI + ", HTTPRouteRule.matches; " + pageIngress + ", “Multiple matches”",
	},
	{
		ID:       RouteNeverMatches,
		Severity: Warning,
		Title:    "a hostname or a match that no request has",
		Description: "A hostname of a route that none of its listeners has is ignored. A path is compared without " +
			"the query and the fragment, and its asterisk is no wildcard; a regular expression must match the whole " +
			"path, which begins with a slash.",
		Cure:   "correct the hostname or the path",
		Source: gatewayAPI + ", HTTPRouteSpec.hostnames and HTTPPathMatch; " + pageIngress + ", “Path types”",
	},
	{
		ID:       PathTrailingSlash,
		Severity: Note,
		Title:    "an exact path ends in a slash, and the path without it is not served",
		Description: "In paths of type Exact a slash at the end counts: /a/ is served, and /a is not, unless another " +
			"rule has it. In prefixes it does not count.",
		Cure:   "use the type Prefix or PathPrefix, or add the path without the slash",
		Source: gatewayAPI + ", HTTPPathMatch; " + pageIngress + ", “Path types”",
	},
	{
		ID:       RedirectLoop,
		Severity: Error,
		Title:    "a redirect leads to the URL that it redirects",
		Description: "A redirect that changes the scheme only is meant for listeners with HTTP. If the route is " +
			"attached to a listener with HTTPS, too, requests there are redirected to themselves until the client gives up.",
		Cure:   "attach the route to the listener with HTTP only, by the sectionName of its parentRef",
		Source: gatewayAPI + ", HTTPRequestRedirectFilter",
	},
	{
		ID:       RoutePolicyNotAccepted,
		Severity: Error,
		Title:    "a RoutePolicy has no target, another one has its target, or it closes its routes",
		Description: "A RoutePolicy restricts the rules of routes that it names. One that cannot be obeyed closes them: " +
			"requests are answered with 503. Of several for the same target the oldest holds, and the others do nothing, " +
			"which is a warning. In manifests, a route or a Secret that does not exist is not reported, unless one of a " +
			"similar name does.",
		Cure:   "name a route and a rule of it that exist, and a Secret with users; leave one policy for a target",
		Source: "Portolan, RoutePolicy; GEP-713",
	},
	{
		ID:       TLSAuthorityMissing,
		Severity: Error,
		Title:    "the ConfigMap with the authorities for the certificates of clients does not exist",
		Description: "A listener for HTTPS whose Gateway validates clients (tls.frontend) refuses those whose certificates " +
			"are of an authority that it does not have; without any authority it refuses all clients. In manifests, the rule " +
			"needs a ConfigMap of a similar name.",
		Cure:   "create the ConfigMap, or correct its name",
		Source: gatewayAPI + ", FrontendTLSValidation.caCertificateRefs",
	},
	{
		ID:       TLSSecretMissing,
		Severity: Error,
		Title:    "the Secret of a certificate does not exist",
		Description: "The listener or the hosts are served without a certificate, or not at all. In manifests, the " +
			"rule needs a Secret of a similar name.",
		Cure:   "create the Secret, or correct its name",
		Source: pageIngress + ", “TLS”; " + gatewayAPI + ", ListenerTLSConfig",
	},
	{
		ID:       TLSSecretInvalid,
		Severity: Error,
		Title:    "the Secret of a certificate has no valid certificate and key",
		Description: "The Secret must be of type kubernetes.io/tls and have a certificate in tls.crt and its key in " +
			"tls.key, as PEM; and the certificate must not have expired. In manifests, a Secret without these values " +
			"is not reported: others may write them.",
		Cure:   "correct the Secret, or renew the certificate",
		Source: pageIngress + ", “TLS”; " + gatewayAPI + ", ListenerTLSConfig",
	},
	{
		ID:          TLSCertificateNames,
		Severity:    Warning,
		Title:       "a certificate does not have the names that it is served for",
		Description: "Clients refuse a certificate without the host that they asked for (RFC 9525).",
		Cure:        "use a certificate that has the host, or a wildcard for it",
		Source:      "RFC 9525; " + pageIngress + ", “TLS”",
	},
}
