// Package dnsconfig computes the resolv.conf that a Pod gets, and the hostname
// that it sees, and says what is wrong with a Pod's settings for DNS.
//
// It implements the KEP Configurable Pod DNS, the page DNS for Services and
// Pods of Kubernetes' documentation, and of the KEP DNS Autopath in PodSpec the
// policy. Where these are silent it does as the kubelet of Kubernetes 1.36
// (pkg/kubelet/network/dns), and Validate as that release's API server
// (pkg/apis/core/validation), with two differences: the order of options is the
// same every time, and policies that only the KEPs have are taken.
//
// Everything here is a pure function.
package dnsconfig

import (
	"cmp"
	"net/netip"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// Policy is a Pod's dnsPolicy, as the Pod spells it.
type DNSPolicy string

// The policies. No policy ("") is ClusterFirst.
const (
	// Default takes the node's resolv.conf.
	Default DNSPolicy = "Default"
	// ClusterFirst asks the cluster's DNS, and searches the Pod's namespace,
	// all Services, the cluster domain, then the node's domains. A Pod in the
	// node's network gets Default instead.
	ClusterFirst DNSPolicy = "ClusterFirst"
	// ClusterFirstWithHostNet is ClusterFirst in the node's network, too.
	ClusterFirstWithHostNet DNSPolicy = "ClusterFirstWithHostNet"
	// None takes only what dnsConfig says.
	None DNSPolicy = "None"
	// Custom is None in the KEP Configurable Pod DNS.
	Custom DNSPolicy = "Custom"
	// ClusterFirstWithAutopath is ClusterFirst with one search domain, which
	// stands for all of them: the server searches (KEP DNS Autopath in
	// PodSpec). As the KEP does not say otherwise, a Pod in the node's
	// network gets Default, as with ClusterFirst. The KEP also spells it
	// with a small c.
	ClusterFirstWithAutopath DNSPolicy = "ClusterFirstWithAutopath"
)

const smallAutopath DNSPolicy = "clusterFirstWithAutopath"

// autopathSuffix is the KEP's.
const autopathSuffix = "ap.k8s.io"

// canonical is the name for the policy that the code goes by. A policy that is
// unknown stays as it is.
func (p DNSPolicy) canonical() DNSPolicy {
	switch p {
	case "":
		return ClusterFirst
	case Custom:
		return None
	case smallAutopath:
		return ClusterFirstWithAutopath
	}
	return p
}

// OS is a Pod's os.name.
type OS string

// The operating systems that Kubernetes knows; a Pod that names none ("") is
// taken for one of Linux.
const (
	Linux   OS = "linux"
	Windows OS = "windows"
)

// Pod is what of a Pod, or of a Pod's template, matters here. Its fields are
// those of corev1.PodSpec.
type PodSettings struct {
	Namespace string // "" is default
	Name      string
	// Path is where the PodSpec stands in its object, for the fields that
	// warnings and errors name: "spec.template.spec" in a Deployment. "" is
	// "spec", as in a Pod.
	Path string
	OS   OS
	// Libc is whose resolver the Pod's programs use, if that is known.
	Libc        Libc
	HostNetwork bool
	Policy      DNSPolicy
	DNSConfig   *DNSConfig // nil: the Pod has none
	Hostname    string
	Subdomain   string
	// HostnameOverride, if it is not nil, is the Pod's hostname instead of all
	// else.
	HostnameOverride  *string
	SetHostnameAsFQDN bool
}

// DNSConfig is a Pod's dnsConfig, as the Pod spells it. An option without a
// value has the value "".
type DNSConfig struct {
	Nameservers []string
	Searches    []string
	Options     []resolvconf.Option
}

// field is the path of a field of the PodSpec, such as "spec.dnsPolicy".
func (p *PodSettings) field(name string) string {
	if p.Path == "" {
		return "spec." + name
	}
	return p.Path + "." + name
}

func (p *PodSettings) namespace() string {
	if p.Namespace == "" {
		return "default"
	}
	return p.Namespace
}

// Node is what of a node and its kubelet matters here.
type NodeSettings struct {
	// ClusterDomain and ClusterDNS are the kubelet's settings clusterDomain,
	// such as "cluster.local", and clusterDNS, addresses of any family. A
	// kubelet may have neither.
	ClusterDomain string
	ClusterDNS    []netip.Addr
	// AutopathSuffix ends the search domain of ClusterFirstWithAutopath; "" is the
	// KEP's, "ap.k8s.io".
	AutopathSuffix string
	// ResolvConf is the file that the kubelet's setting resolvConf names, as
	// ParseNode gives it; nil if it names none.
	ResolvConf *resolvconf.Config
	// Addrs are the node's own addresses. They decide only in which families
	// a Pod asks its own loopback, where there is no resolv.conf.
	Addrs []netip.Addr
	// Hostname is that of the node, which Pods in its network see.
	Hostname string
}

// Result is what Resolve found.
type Resolution struct {
	// Config is what the kubelet hands to the container runtime, which
	// writes it to the Pod's resolv.conf. A Windows Pod has no such file: the
	// runtime gives it the nameservers and the first search domain.
	Config resolvconf.Config
	// Policy is the one that was applied: Default, ClusterFirst,
	// ClusterFirstWithHostNet, None or ClusterFirstWithAutopath.
	Policy DNSPolicy
	// Warnings are in the order in which they were met.
	Warnings []Warning
}

// Resolve computes the resolv.conf of a Pod on a node. It gives a Config for a
// Pod that Validate refuses, too, and leaves out what no resolv.conf can hold.
func Resolve(p PodSettings, n NodeSettings) Resolution {
	f := builder{pod: &p, node: &n}
	policy := f.policy()
	all := f.base(policy)
	if p.DNSConfig != nil {
		f.spelling()
		all.merge(p.DNSConfig)
	}
	all.nameservers = f.limitNameservers(all.nameservers)
	all.searches = f.limitSearches(all.searches)
	config := all.config()
	f.olderLimits(config)
	f.options(config)
	if p.OS == Windows {
		f.windows(config)
	}
	return Resolution{Config: config, Policy: policy, Warnings: f.warnings}
}

// former holds what Resolve goes by, and the warnings so far.
type builder struct {
	pod  *PodSettings
	node *NodeSettings
	warner
}

// policy decides which policy is applied.
func (f *builder) policy() DNSPolicy {
	policy := f.pod.Policy.canonical()
	field := f.pod.field("dnsPolicy")
	switch f.pod.Policy {
	case Custom:
		f.warn(UnknownPolicy, field, "the API server does not accept Custom: the policy is called None since Kubernetes 1.9")
	case ClusterFirstWithAutopath, smallAutopath:
		f.warn(UnknownPolicy, field, "the API server does not accept %s: use None, and as dnsConfig the settings that the Pod gets here", f.pod.Policy)
	}
	switch policy {
	case Default, None:
		return policy
	case ClusterFirst, ClusterFirstWithAutopath:
		if f.pod.HostNetwork {
			f.warn(HostNetworkPolicy, field, "with hostNetwork, %s acts as Default: ClusterFirstWithHostNet uses the cluster DNS", policy)
			return Default
		}
	case ClusterFirstWithHostNet:
		if f.pod.OS == Windows {
			f.warn(WindowsPolicy, field, "ClusterFirstWithHostNet is not supported for Windows Pods")
		}
	default:
		f.warn(UnknownPolicy, field, "unknown policy %.64q: the kubelet treats it as ClusterFirst", policy)
		policy = ClusterFirst
	}
	if len(f.node.ClusterDNS) == 0 {
		f.warn(NoClusterDNS, field, "the kubelet has no clusterDNS: %s acts as Default", policy)
		return Default
	}
	return policy
}

// base is what a policy gives, before dnsConfig.
func (f *builder) base(policy DNSPolicy) lists {
	switch policy {
	case None:
		return lists{}
	case Default:
		return f.nodeLists()
	}
	var l lists
	for _, addr := range f.node.ClusterDNS {
		l.nameservers = append(l.nameservers, addr.Unmap().String())
	}
	l.searches = f.clusterSearches(policy)
	l.options = []resolvconf.Option{{Name: "ndots", Value: "5"}}
	return l
}

// clusterSearches are the search domains of ClusterFirst and its kin.
func (f *builder) clusterSearches(policy DNSPolicy) []string {
	domain, namespace := f.node.ClusterDomain, f.pod.namespace()
	if domain == "" {
		f.warn(NoClusterDomain, f.pod.field("dnsPolicy"), "the kubelet has no clusterDomain: short names of Services do not resolve")
		return f.nodeSearches()
	}
	if policy == ClusterFirstWithAutopath {
		return []string{"search." + namespace + "." + domain + "." + cmp.Or(f.node.AutopathSuffix, autopathSuffix)}
	}
	return unique([]string{namespace + ".svc." + domain, "svc." + domain, domain}, f.nodeSearches())
}
