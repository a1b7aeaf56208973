package lint

// Rule is something that is looked for.
type Rule struct {
	// ID stays the same for good.
	ID       string
	Severity Severity
	// Admission tells that it can be judged from the one object alone, before
	// that is in the cluster.
	Admission bool
	// Title is what is found, in a few words.
	Title string
	// Description is why that matters, in whole sentences.
	Description string
	// Source is where it is written.
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
	NetworkPolicyBlocksDNS         = "network-policy-blocks-dns"
	NetworkPolicyDNSOverTCP        = "network-policy-dns-over-tcp"
)

// IgnoreAnnotation names rules, between commas, that an object in manifests is
// not to be judged by; in a template it holds for what is found of the Pods.
const IgnoreAnnotation = "portolan.dev/ignore-rules"

// The IDs of what is wrong with manifests themselves, which a source tells.
const (
	ManifestRejected = "manifest-rejected"
	ManifestWarning  = "manifest-warning"
)

// ManifestRules lists the rules of ManifestRejected and ManifestWarning.
func ManifestRules() []Rule {
	return []Rule{
		{ID: ManifestRejected, Severity: Error, Title: "a document is rejected",
			Description: "What it describes does not count: its last good version stays, or nothing.",
			Source:      "the Kubernetes API"},
		{ID: ManifestWarning, Severity: Warning, Title: "something in a document is passed over",
			Description: "An unknown field, an unknown version or kind, a template that has to be rendered, or an object that is declared twice.",
			Source:      "the Kubernetes API"},
	}
}

// Sources of rules.
const (
	specification  = "Kubernetes DNS-Based Service Discovery 1.1.0"
	pageDNS        = "DNS for Services and Pods"
	pageService    = "Service"
	pageSlices     = "EndpointSlices"
	pagePolicies   = "Network Policies"
	pageDualStack  = "IPv4/IPv6 dual-stack"
	kepPodDNS      = "KEP Configurable Pod DNS"
	headlessRecord = specification + ", section 2.4"
)

// Rules lists all rules, by ID within each kind of object.
func Rules() []Rule { return append([]Rule(nil), rules...) }

// severities are those of the rules.
var severities = func() map[string]Severity {
	all := make(map[string]Severity, len(rules))
	for _, r := range rules {
		all[r.ID] = r.Severity
	}
	return all
}()

var rules = []Rule{
	{ID: ServiceSelectsNoPod, Severity: Error, Title: "a Service selects no Pod",
		Description: "No Pod, and no template of a workload, has the labels that the Service's selector wants, so it has no endpoints: a headless Service's name does not exist, and at a cluster IP nothing answers. It is an error where a Pod or template comes near, by a slip; else a warning, for the Pods may be made elsewhere, or get the label as they run.",
		Source:      pageService + ", “Defining a Service”; " + headlessRecord},
	{ID: ServiceNoReadyEndpoint, Severity: Warning, Title: "a Service has endpoints, and none is ready",
		Description: "Records lead to ready endpoints only, unless the Service has publishNotReadyAddresses. It is a warning, for it passes when Pods become ready; the message says what one of them waits for.",
		Source:      specification + ", sections 2.1 and 2.4.1; " + pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: ServiceNoEndpoints, Severity: Warning, Title: "a Service without selector has no endpoints",
		Description: "The control plane makes EndpointSlices for Services that have a selector. Those of others somebody has to make: by hand, or by a program.",
		Source:      pageService + ", “Services without selectors”"},
	{ID: ServiceScaledToZero, Severity: Warning, Title: "all that a Service selects has 0 replicas",
		Description: "The selector is right, and there will be no endpoint until somebody gives the workload a replica.",
		Source:      headlessRecord + ".1"},
	{ID: ServiceFamilyNoEndpoint, Severity: Warning, Title: "a Service has an address of a family in which it has no endpoint",
		Description: "The name has records of both families, and clients choose one, mostly IPv6. Where no endpoint has an address of that family nothing answers.",
		Source:      pageDualStack + ", “Services”"},
	{ID: ServicePortNames, Severity: Error, Admission: true, Title: "ports of a Service have no names of their own",
		Description: "A Service of several ports must name each, and no two alike: names are how endpoints and SRV records find theirs.",
		Source:      pageService + ", “Multi-port Services”"},
	{ID: ServicePortUnnamed, Severity: Note, Admission: true, Title: "a port of a Service has no name",
		Description: "Ports without a name have no SRV record of the form _PORT._PROTOCOL.SERVICE.",
		Source:      specification + ", sections 2.3.2 and 2.4.2"},
	{ID: ServiceTargetPortMissing, Severity: Error, Title: "a Service's targetPort is a name that no Pod has",
		Description: "A name as targetPort is that of a container's port, of the same protocol. Pods without such a port are no endpoints for it.",
		Source:      pageService + ", “Port definitions”"},
	{ID: ServiceTargetPortUnlisted, Severity: Note, Title: "a Service's targetPort is a number that its Pods do not list",
		Description: "The ports of a container need not be listed; where all Pods list some, and not this one, it is often a slip.",
		Source:      pageService + ", “Port definitions”"},
	{ID: ServiceHidesNamespace, Severity: Warning, Title: "an endpoint hides a Service of a Namespace",
		Description: "A Pod's search list begins with its own namespace. Where that has a Service named as another Namespace, HOST.NAME is an endpoint of the one before it is a Service of the other.",
		Source:      pageDNS + ", “Namespaces of Services”"},
	{ID: HeadlessPortTranslated, Severity: Warning, Title: "a headless Service has a targetPort other than its port",
		Description: "The name of a headless Service leads to the Pods themselves, with no proxy between that would take the port to the targetPort. Clients that go by SRV records get the Pods' port; others use the one that they see in the Service, and are refused.",
		Source:      pageService + ", “Headless Services”"},
	{ID: ClusterIPShared, Severity: Error, Title: "two Services have the same cluster IP",
		Description: "A cluster IP is assigned once; the API server refuses it a second time.",
		Source:      pageService + ", “Choosing your own IP address”"},
	{ID: ExternalNameAddress, Severity: Error, Admission: true, Title: "the target of an ExternalName Service is an address",
		Description: "An ExternalName is a name, and what looks like an address is no name: it does not resolve. Addresses are for a headless Service without selector, and an EndpointSlice.",
		Source:      pageService + ", “type: ExternalName”"},
	{ID: ExternalNameUnqualified, Severity: Error, Admission: true, Title: "the target of an ExternalName Service is not a whole name",
		Description: "The target becomes that of a CNAME record, and nobody searches it: a Service of the cluster needs SERVICE.NAMESPACE.svc and the cluster's domain.",
		Source:      specification + ", section 2.5"},
	{ID: ExternalNameLoop, Severity: Error, Title: "ExternalName Services lead in a circle",
		Description: "Each is an alias of the next, and the last of the first: none of them resolves.",
		Source:      specification + ", section 2.5; RFC 1034, section 3.6.2"},
	{ID: ExternalNameMissingService, Severity: Error, Title: "the target of an ExternalName Service is not in the cluster",
		Description: "The target ends with the cluster's domain, and there is no such Service. Where the Namespace is not there either it is a warning: the manifests may be elsewhere.",
		Source:      specification + ", section 2.5"},
	{ID: ExternalNameSelector, Severity: Warning, Admission: true, Title: "an ExternalName Service has a selector",
		Description: "A Service of this type is only an alias: it has no endpoints, and its selector has no effect.",
		Source:      pageService + ", “type: ExternalName”"},
	{ID: EndpointSliceNoService, Severity: Warning, Admission: true, Title: "an EndpointSlice belongs to no Service",
		Description: "A slice belongs to the Service that its label kubernetes.io/service-name names. Without, nobody looks at it.",
		Source:      pageSlices + ", “Ownership”; " + pageService + ", “Services without selectors”"},
	{ID: EndpointSliceOrphan, Severity: Warning, Title: "an EndpointSlice belongs to a Service that is not there",
		Description: "The label kubernetes.io/service-name names a Service of the same namespace. There is none.",
		Source:      pageSlices + ", “Ownership”"},
	{ID: EndpointSlicePortMismatch, Severity: Error, Title: "ports of an EndpointSlice are not those of its Service",
		Description: "Ports of a slice and of its Service go together by name and protocol. What comes for a port of the Service that the slice does not have finds no endpoint. Of a headless Service it is a warning: only SRV records go by the names, which are the slice's.",
		Source:      pageService + ", “Services without selectors”"},
	{ID: EndpointSliceFQDN, Severity: Warning, Admission: true, Title: "an EndpointSlice has names for addresses",
		Description: "The address type FQDN has no meaning for DNS: no record is made of it.",
		Source:      headlessRecord + ".1"},
	{ID: EndpointAddressForbidden, Severity: Error, Admission: true, Title: "an endpoint has an address that means another host to each client",
		Description: "Endpoints must not be loopback or link-local addresses.",
		Source:      pageService + ", “Services without selectors”"},
	{ID: EndpointIsClusterIP, Severity: Error, Title: "an endpoint is the cluster IP of a Service",
		Description: "Virtual addresses are no destination for what kube-proxy passes on.",
		Source:      pageService + ", “Services without selectors”"},
	{ID: EndpointHostnameShared, Severity: Warning, Title: "two endpoints of a Service have the same hostname",
		Description: "The name HOSTNAME.SERVICE has the addresses of both: who asks for one Pod gets another half of the time.",
		Source:      headlessRecord + ".1"},
	{ID: NamespaceIsTLD, Severity: Note, Title: "a Namespace is named as a top-level domain",
		Description: "Pods search svc.DOMAIN before they ask for a name of few dots as it is: SERVICE.NAMESPACE hides the same name on the internet.",
		Source:      pageDNS + ", “Namespaces of Services”"},
	{ID: NamespaceNamedSvc, Severity: Warning, Admission: true, Title: "a Namespace is named svc or pod",
		Description: "The search domain svc.DOMAIN comes before DOMAIN: SERVICE.NAMESPACE.svc is looked for in this Namespace first, where NAMESPACE is a Service and SERVICE an endpoint.",
		Source:      pageDNS + ", “Namespaces of Services”"},
	{ID: DNSServiceMissing, Severity: Warning, Title: "the Service of the cluster's DNS is not there",
		Description: "Pods ask for names at the address of that Service. Clusters have it in kube-system as kube-dns, whatever serves them. It is not judged where nothing of that namespace is known.",
		Source:      pageService + ", “Discovering services”"},
	{ID: DNSServicePorts, Severity: Error, Title: "the Service of the cluster's DNS lacks a port",
		Description: "Clients ask over UDP, and over TCP when an answer does not fit a packet.",
		Source:      "RFC 7766, section 5; RFC 1035, section 4.2"},

	{ID: PodDNSRefused, Severity: Error, Admission: true, Title: "the API server refuses a Pod's settings",
		Description: "Settings of a Pod's DNS and hostname that are not valid. Those in a template are found only when the first Pod is made of it.",
		Source:      pageDNS + ", “Pod's DNS Config”; " + kepPodDNS + ", “API changes”"},
	{ID: PodDNSLimit, Severity: Warning, Title: "what a Pod asks for is over the limits, and left out",
		Description: "A Pod has at most 3 nameservers and 32 search domains, of 2,048 characters together and 253 each. The kubelet leaves out what is beyond, and says so in an event.",
		Source:      pageDNS + ", “DNS search domain list limits” and “Pod's DNS Config”"},
	{ID: PodDNSOlderLimit, Severity: Warning, Admission: true, Title: "a Pod's list is longer than some resolvers take",
		Description: "Kubernetes allows it; older resolvers and runtimes leave out what is beyond their limits, or don't start the Pod.",
		Source:      pageDNS + ", “DNS search domain list limits”; resolv.conf(5)"},
	{ID: PodDNSOptionUnknown, Severity: Warning, Admission: true, Title: "an option of a Pod's dnsConfig has no effect",
		Description: "Resolvers pass over options that they don't know, without a word.",
		Source:      pageDNS + ", “Pod's DNS Config”; resolv.conf(5)"},
	{ID: PodDNSOptionWithoutValue, Severity: Warning, Admission: true, Title: "an option of a Pod's dnsConfig lacks its value",
		Description: "Options such as ndots are nothing without a number.",
		Source:      "resolv.conf(5)"},
	{ID: PodOptionZero, Severity: Warning, Admission: true, Title: "no attempts, or no time, for a lookup",
		Description: "musl, as in Alpine images, divides the time among the attempts: with attempts:0 a program ends at its first lookup (SIGFPE), and with timeout:0 it asks nobody. glibc and Go take 1 for 0.",
		Source:      "resolv.conf(5); musl 1.2.3, src/network/res_msend.c; tried in test/netns"},
	{ID: PodNdotsCapped, Severity: Note, Admission: true, Title: "ndots is higher than resolvers take",
		Description: "More than 15 is 15.",
		Source:      "resolv.conf(5)"},
	{ID: PodNdotsLow, Severity: Note, Title: "with a low ndots, names of other namespaces are not found, or late",
		Description: "A name with as many dots as ndots is tried as it is first. musl, as in Alpine images, does not search it then; glibc searches it after an answer from outside the cluster.",
		Source:      "resolv.conf(5); " + pageDNS + ", “Namespaces of Services”"},
	{ID: PodManyQueries, Severity: Note, Title: "each name outside the cluster costs many queries",
		Description: "A name of fewer dots than ndots is tried under each search domain first, for A and AAAA. The rule goes by what the Pod adds to what every Pod has.",
		Source:      pageDNS + ", “Namespaces of Services”; resolv.conf(5)"},
	{ID: PodNameserverSpelling, Severity: Warning, Admission: true, Title: "a nameserver's address is not in the usual spelling",
		Description: "The API server warns of it: what compares addresses as text takes it for another.",
		Source:      "RFC 5952, section 4"},
	{ID: PodNameserversMixed, Severity: Warning, Title: "a Pod has the cluster's DNS and others beside it",
		Description: "Resolvers take all nameservers of a list for equals. Where one says that a name of the cluster does not exist, that is the answer: with musl each time that it is the first, with glibc when the one before is slow.",
		Source:      pageDNS + ", “Pod's DNS Config”; resolv.conf(5)"},
	{ID: PodNameserverNoDNS, Severity: Error, Title: "a nameserver is the cluster IP of a Service that is no DNS",
		Description: "The Service has no UDP port 53: nothing answers.",
		Source:      pageDNS + ", “Pod's DNS Config”"},
	{ID: PodSearchNowhere, Severity: Warning, Title: "a search domain is not in the cluster",
		Description: "It looks like a Namespace's, which is not there, or like one of another cluster. Nothing is found, and each name costs its queries.",
		Source:      pageDNS + ", “Namespaces of Services”"},
	{ID: PodSearchRoot, Severity: Warning, Admission: true, Title: "the root is a search domain",
		Description: "glibc and Go take it for the name as it is given. musl, as in Alpine images, makes a name with an empty label of it, which no server answers: each name that is searched to there waits until the time is over.",
		Source:      "resolv.conf(5); musl 1.2.3, src/network/lookup_name.c; tried in test/netns"},
	{ID: PodPolicyUnknown, Severity: Warning, Admission: true, Title: "the API server does not take a Pod's dnsPolicy",
		Description: "Names for policies that only the KEPs have.",
		Source:      kepPodDNS + "; KEP DNS Autopath in PodSpec"},
	{ID: PodPolicyDefault, Severity: Note, Title: "a Pod has no names of the cluster: Default",
		Description: "In spite of its name, Default is not what Pods get without dnsPolicy: it is the node's resolv.conf.",
		Source:      pageDNS + ", “Pod's DNS Policy”"},
	{ID: PodPolicyNoneElsewhere, Severity: Note, Title: "a Pod has no names of the cluster: None",
		Description: "With None a Pod has only what its dnsConfig says, and that names nameservers elsewhere.",
		Source:      pageDNS + ", “Pod's DNS Policy”"},
	{ID: PodHostNetworkPolicy, Severity: Warning, Admission: true, Title: "in the node's network, ClusterFirst is Default",
		Description: "A Pod with hostNetwork needs ClusterFirstWithHostNet to have names of the cluster; what it gets otherwise is the node's resolv.conf.",
		Source:      pageDNS + ", “Pod's DNS Policy”"},
	{ID: PodWindowsPolicy, Severity: Warning, Admission: true, Title: "ClusterFirstWithHostNet is not for Windows",
		Description: "It is not supported for Pods that run on Windows nodes.",
		Source:      pageDNS + ", “DNS resolution on Windows nodes”"},
	{ID: PodWindowsSearch, Severity: Note, Title: "Windows searches one domain only",
		Description: "A Windows Pod has its own namespace's DNS suffix: names such as SERVICE.NAMESPACE do not resolve there.",
		Source:      pageDNS + ", “DNS resolution on Windows nodes”"},
	{ID: PodNoClusterDNS, Severity: Warning, Title: "the kubelet knows no address of the cluster's DNS",
		Description: "Pods get the node's resolv.conf, and the kubelet says so in an event.",
		Source:      kepPodDNS + "; " + pageDNS + ", “Pod's DNS Policy”"},
	{ID: PodNoClusterDomain, Severity: Warning, Title: "the kubelet knows no cluster domain",
		Description: "Pods search none: short names of Services do not resolve.",
		Source:      kepPodDNS},
	{ID: PodHostnameCut, Severity: Warning, Admission: true, Title: "a Pod's name is too long for a hostname",
		Description: "A hostname has at most 63 characters. The kubelet cuts off what is beyond, and two Pods may have the same then.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”; RFC 1123, section 2.1"},
	{ID: PodHostnameShared, Severity: Warning, Title: "several Pods have the same hostname and subdomain",
		Description: "The name that each takes for its own leads to all of them.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: PodFQDNTooLong, Severity: Error, Admission: true, Title: "a Pod does not start: its FQDN is over 64 characters",
		Description: "With setHostnameAsFQDN the kernel's hostname is the FQDN, for which Linux has 64 characters. The Pod stays Pending.",
		Source:      pageDNS + ", “Pod's setHostnameAsFQDN field”"},
	{ID: PodFQDNNoEffect, Severity: Warning, Admission: true, Title: "setHostnameAsFQDN has no effect",
		Description: "Without a subdomain, or in the node's network, a Pod has no FQDN that would be its hostname.",
		Source:      pageDNS + ", “Pod's setHostnameAsFQDN field”"},
	{ID: PodSubdomainNoService, Severity: Error, Title: "a Pod's subdomain has no Service",
		Description: "A Pod with a subdomain takes HOSTNAME.SUBDOMAIN.NAMESPACE.svc for its name. It resolves only where a headless Service of that name selects the Pod.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: PodSubdomainNotHeadless, Severity: Warning, Title: "the Service of a Pod's subdomain is not headless",
		Description: "Names of Pods are promised under headless Services; some servers make them under others, too.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: PodSubdomainNotSelected, Severity: Error, Title: "the Service of a Pod's subdomain does not select it",
		Description: "Only what is an endpoint of the Service has a name under it.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: PodSubdomainNoHostname, Severity: Warning, Title: "a Pod has a subdomain and no hostname",
		Description: "Its endpoint has no hostname then: its addresses are among the Service's, and it has no record of its own.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: StatefulSetNoService, Severity: Warning, Title: "a StatefulSet names no Service",
		Description: "Its Pods have stable names only under the Service that serviceName names.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: StatefulSetServiceMissing, Severity: Error, Title: "a StatefulSet's Service is not there",
		Description: "Its Pods' names, POD.SERVICE, are made of the Service that serviceName names. The API server does not look whether it is there.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: StatefulSetServiceNotHeadless, Severity: Warning, Title: "a StatefulSet's Service is not headless",
		Description: "Names of Pods are promised under headless Services; some servers make them under others, too.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: StatefulSetServiceNotSelecting, Severity: Error, Title: "a StatefulSet's Service does not select its Pods",
		Description: "Only what is an endpoint of the Service has a name under it.",
		Source:      pageDNS + ", “Pod's hostname and subdomain fields”"},
	{ID: NetworkPolicyBlocksDNS, Severity: Error, Title: "NetworkPolicies keep a Pod from asking the cluster's DNS",
		Description: "A Pod that a policy selects for egress may open only the connections that some policy allows, and DNS is one. Policies at the DNS' own Pods have to allow it, too. Policies go by the DNS Pods' labels and their own port, which need not be 53. Whether an ipBlock is compared with the Service's address or a Pod's differs between network plugins: one that covers either counts as allowing. It is told once of each policy, of several that apply to a Pod of the one whose rule comes nearest. Where the Service is not known its Pods are taken to have the label k8s-app: kube-dns in the namespace kube-system; there, and where Pods ask at another address than the Service's, a rule for port 53 or 5353, or for all ports of Pods elsewhere, makes it a warning: it may be meant for the DNS. Policies of other kinds than Kubernetes' own are not known here.",
		Source:      pagePolicies + ", “The two sorts of Pod isolation” and “Behavior of to and from selectors”"},
	{ID: NetworkPolicyDNSOverTCP, Severity: Warning, Title: "NetworkPolicies let a Pod ask over UDP and not over TCP",
		Description: "An answer that does not fit a packet is cut off, and the client asks again over TCP: large answers, and no others, are lost.",
		Source:      "RFC 7766, section 5; " + pagePolicies + ", “The two sorts of Pod isolation”"},
}
