package lint

// networkRules check NetworkPolicies.
var networkRules = []Rule{
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
