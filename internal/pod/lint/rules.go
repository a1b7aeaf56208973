package lint

import "slices"

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
	LoadBalancerIPsInvalid         = "load-balancer-ips-invalid"
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
	PodBandwidthInvalid            = "pod-bandwidth-invalid"
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
	IngressClassUnserved           = "ingress-class-unserved"
	IngressTLSHost                 = "ingress-tls-host"
	GatewayClassUnserved           = "gateway-class-unserved"
	ListenerConflict               = "listener-conflict"
	ListenerSetNotAllowed          = "listenerset-not-allowed"
	RouteNotAccepted               = "route-not-accepted"
	RouteBackendMissing            = "route-backend-missing"
	ReferenceGrantMissing          = "reference-grant-missing"
	RouteShadowed                  = "route-shadowed"
	RoutePolicyNotAccepted         = "routepolicy-not-accepted"
	RouteNeverMatches              = "route-never-matches"
	PathTrailingSlash              = "path-trailing-slash"
	RedirectLoop                   = "redirect-loop"
	TLSAuthorityMissing            = "tls-authority-missing"
	TLSSecretMissing               = "tls-secret-missing"
	TLSSecretInvalid               = "tls-secret-invalid"
	TLSCertificateNames            = "tls-certificate-names"
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
	gatewayAPI     = "Gateway API v1"
	pageDualStack  = "IPv4/IPv6 dual-stack"
	kepPodDNS      = "KEP Configurable Pod DNS"
	headlessRecord = specification + ", section 2.4"
)

// Rules returns all rules, grouped by the kind of object that they check.
func Rules() []Rule { return slices.Clone(rules) }

// severities has the severity of each rule by its ID.
var severities = func() map[string]Severity {
	all := make(map[string]Severity, len(rules))
	for _, r := range rules {
		all[r.ID] = r.Severity
	}
	return all
}()

var rules = slices.Concat(
	serviceRules,
	endpointRules,
	podDNSRules,
	podNameRules,
	ingressRules,
	gatewayRules,
	networkRules,
)
