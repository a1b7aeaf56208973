// Package dnsconfig computes the resolv.conf and the hostname of a Pod, and finds
// problems in a Pod's DNS settings.
//
// It implements the KEP Configurable Pod DNS, the page DNS for Services and Pods of the
// Kubernetes documentation, and the policy of the KEP DNS Autopath in PodSpec. What these
// do not specify follows the kubelet of Kubernetes 1.36 (pkg/kubelet/network/dns), and in
// Validate the API server of that release (pkg/apis/core/validation), with two
// differences: the order of options is deterministic, and policies that only the KEPs
// define are accepted.
//
// Everything here is a pure function. Resolve works in this order:
//
//	dnsPolicy ─► lists of the policy ─► merge dnsConfig ─► apply limits ─► resolv.conf
//	(policy)     (base)                 (merge)            (limit...)      (config)
package dnsconfig

import (
	"cmp"
	"net/netip"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// DNSPolicy is the dnsPolicy of a Pod, as written there.
type DNSPolicy string

// The policies. An empty policy is ClusterFirst.
const (
	// Default uses the node's resolv.conf.
	Default DNSPolicy = "Default"
	// ClusterFirst uses the cluster DNS, and searches the Pod's namespace, all
	// namespaces, the cluster domain and then the node's search domains. With
	// hostNetwork it acts as Default.
	ClusterFirst DNSPolicy = "ClusterFirst"
	// ClusterFirstWithHostNet is ClusterFirst also with hostNetwork.
	ClusterFirstWithHostNet DNSPolicy = "ClusterFirstWithHostNet"
	// None uses dnsConfig only.
	None DNSPolicy = "None"
	// Custom is the name of None in the KEP Configurable Pod DNS.
	Custom DNSPolicy = "Custom"
	// ClusterFirstWithAutopath is ClusterFirst with a single search domain, for which
	// the server applies the search list (KEP DNS Autopath in PodSpec). With hostNetwork
	// it acts as Default, like ClusterFirst; the KEP does not specify it. The KEP also
	// spells it with a lower-case c.
	ClusterFirstWithAutopath DNSPolicy = "ClusterFirstWithAutopath"
)

const lowerCaseAutopath DNSPolicy = "clusterFirstWithAutopath"

// autopathSuffix is the default suffix of the KEP.
const autopathSuffix = "ap.k8s.io"

// canonical returns the policy under a single name. An unknown policy is unchanged.
func (p DNSPolicy) canonical() DNSPolicy {
	switch p {
	case "":
		return ClusterFirst
	case Custom:
		return None
	case lowerCaseAutopath:
		return ClusterFirstWithAutopath
	}
	return p
}

// OS is the os.name of a Pod.
type OS string

// The operating systems of Kubernetes. An empty OS is Linux.
const (
	Linux   OS = "linux"
	Windows OS = "windows"
)

// PodSettings has the DNS and hostname settings of a Pod or Pod template. Its fields are
// those of corev1.PodSpec.
type PodSettings struct {
	Namespace string // "" is the namespace default
	Name      string
	// Path is the path of the PodSpec in its object, such as "spec.template.spec" in a
	// Deployment, for the fields in warnings and errors. "" is "spec", as in a Pod.
	Path string
	OS   OS
	// Libc is the resolver of the Pod's programs, if it is known.
	Libc        Libc
	HostNetwork bool
	Policy      DNSPolicy
	DNSConfig   *DNSConfig // nil if the Pod has none
	Hostname    string
	Subdomain   string
	// HostnameOverride, if not nil, overrides the other hostname settings.
	HostnameOverride  *string
	SetHostnameAsFQDN bool
}

// DNSConfig is the dnsConfig of a Pod, as written there. An option without a value has
// the value "".
type DNSConfig struct {
	Nameservers []string
	Searches    []string
	Options     []resolvconf.Option
}

// field returns the path of a field of the PodSpec, such as "spec.dnsPolicy".
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

// NodeSettings has the settings of a node and its kubelet.
type NodeSettings struct {
	// ClusterDomain and ClusterDNS are clusterDomain, such as "cluster.local", and
	// clusterDNS, addresses of any family, in the kubelet's configuration. Both may be
	// empty.
	ClusterDomain string
	ClusterDNS    []netip.Addr
	// AutopathSuffix is the suffix of the search domain of ClusterFirstWithAutopath. ""
	// is "ap.k8s.io", as in the KEP.
	AutopathSuffix string
	// ResolvConf is the file of the kubelet's setting resolvConf, as ParseNode returns
	// it, or nil if the setting is empty.
	ResolvConf *resolvconf.Config
	// Unknown reports whether ResolvConf is nil because the file is not known.
	Unknown bool
	// Addrs are the node's addresses. Without a ResolvConf, a Pod has a loopback
	// address of each of their families as nameserver.
	Addrs []netip.Addr
	// Hostname is the node's hostname, which Pods with hostNetwork have.
	Hostname string
}

// Resolution is the result of Resolve.
type Resolution struct {
	// Config is what the kubelet passes to the container runtime, which writes the
	// Pod's resolv.conf. A Windows Pod has no such file: the runtime sets the
	// nameservers and the first search domain.
	Config resolvconf.Config
	// Policy is the effective policy: Default, ClusterFirst,
	// ClusterFirstWithHostNet, None or ClusterFirstWithAutopath.
	Policy DNSPolicy
	// Unknown is the part of Config that the node's resolv.conf determines, which is not
	// known and left out.
	Unknown Part
	// Warnings are in the order in which they occurred.
	Warnings []Warning
}

// Part is a part of a resolv.conf.
type Part uint8

// The parts that the node's resolv.conf determines.
const (
	Nothing      Part = iota
	LastSearches      // search domains after those of the cluster
	Everything        // all but what dnsConfig adds
)

// Resolve computes the resolv.conf of a Pod on a node. It returns a Config also for a Pod
// that Validate refuses, without the values that a resolv.conf cannot contain.
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
	return Resolution{Config: config, Policy: policy, Unknown: f.unknown(policy), Warnings: f.warnings}
}

// unknown returns the part of the resolv.conf that is not known with a policy.
func (f *builder) unknown(policy DNSPolicy) Part {
	switch {
	case !f.node.Unknown || policy == None:
		return Nothing
	case policy == Default:
		return Everything
	case policy == ClusterFirstWithAutopath && f.node.ClusterDomain != "":
		return Nothing
	}
	return LastSearches
}

// builder has the input of Resolve, and the warnings so far.
type builder struct {
	pod  *PodSettings
	node *NodeSettings
	warner
}

// policy returns the effective policy.
func (f *builder) policy() DNSPolicy {
	policy := f.pod.Policy.canonical()
	field := f.pod.field("dnsPolicy")
	switch f.pod.Policy {
	case Custom:
		f.warn(UnknownPolicy, field, "the API server does not accept Custom: the policy is called None since Kubernetes 1.9")
	case ClusterFirstWithAutopath, lowerCaseAutopath:
		f.warn(UnknownPolicy, field,
			"the API server does not accept %s: use None, and as dnsConfig the settings that the Pod gets here",
			f.pod.Policy)
	}
	switch policy {
	case Default, None:
		return policy
	case ClusterFirst, ClusterFirstWithAutopath:
		if f.pod.HostNetwork {
			f.warn(HostNetworkPolicy, field,
				"with hostNetwork, %s acts as Default: ClusterFirstWithHostNet uses the cluster DNS", policy)
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

// base returns the lists of a policy, before dnsConfig is merged.
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

// clusterSearches returns the search domains of ClusterFirst and its variants.
func (f *builder) clusterSearches(policy DNSPolicy) []string {
	domain, namespace := f.node.ClusterDomain, f.pod.namespace()
	if domain == "" {
		f.warn(NoClusterDomain, f.pod.field("dnsPolicy"),
			"the kubelet has no clusterDomain: short names of Services do not resolve")
		return f.nodeSearches()
	}
	if policy == ClusterFirstWithAutopath {
		return []string{"search." + namespace + "." + domain + "." + cmp.Or(f.node.AutopathSuffix, autopathSuffix)}
	}
	return unique([]string{namespace + ".svc." + domain, "svc." + domain, domain}, f.nodeSearches())
}
