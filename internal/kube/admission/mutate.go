package admission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// Annotations and labels of Pods and Namespaces.
const (
	// policyKey is an annotation of a Pod, or a label of a Namespace for all its Pods
	// without that annotation. The value is the policy's name, with an upper or lower
	// case c, or off. An empty value is off, too.
	policyKey = "portolan.dev/dns-policy"
	// ndotsKey and nameserversKey are annotations of a Namespace for its Pods that get
	// the policy: ndots, and a comma-separated list of addresses that replace the
	// cluster DNS, such as that of an agent on each node.
	ndotsKey       = "portolan.dev/ndots"
	nameserversKey = "portolan.dev/nameservers"
)

// maxNDots is the limit of resolvers (resolv.conf(5)).
const maxNDots = 15

// Namespaces returns Namespaces by name.
type Namespaces interface {
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
}

// mutator implements the policy ClusterFirstWithAutopath: it sets the policy None and
// the equivalent dnsConfig. A Pod requests the policy by annotation, by a label of its
// Namespace, or as its dnsPolicy, which is the spelling of the KEP and which the API
// server refuses unless the webhook replaces it.
//
// It replaces only ClusterFirst. None and Default are explicit choices; with the
// network of the node ClusterFirst means Default, and ClusterFirstWithHostNet is a
// different policy.
type mutator struct {
	namespaces Namespaces
	node       dnsconfig.NodeSettings // the node as Pods see it
}

func (m *mutator) review(ctx context.Context, r *admissionv1.AdmissionRequest) (v verdict, err error) {
	if r.Operation != admissionv1.Create || r.Resource != pods || r.SubResource != "" {
		return verdict{}, nil
	}
	pod := new(corev1.Pod)
	if err := decode(r.Object.Raw, pod); err != nil {
		return verdict{}, fmt.Errorf("cannot decode the Pod: %w", err)
	}
	requested, err := requestOf(pod)
	if err != nil {
		return unchanged(err), nil
	}
	obstacle := obstacleOf(&pod.Spec)
	switch {
	case requested == declinesPolicy,
		requested == requestsNothing && obstacle != nil,
		pod.Spec.DNSPolicy == corev1.DNSNone:
		return verdict{}, nil //nolint:nilerr // an obstacle is a reason, not a failure
	case obstacle != nil:
		return unchanged(obstacle), nil
	}
	namespace, err := m.namespaces.Namespace(ctx, r.Namespace)
	if err != nil {
		return verdict{}, fmt.Errorf("read namespace %s: %w", r.Namespace, err)
	}
	if requested == requestsNothing && !isAutopath(namespace.Labels[policyKey]) {
		return verdict{}, nil
	}
	made, err := m.resolve(pod, namespace)
	if err != nil {
		return unchanged(err), nil
	}
	return verdict{patch: patchOf(&pod.Spec, made)}, nil
}

// unchanged admits a Pod that requested the policy but cannot have it.
func unchanged(why error) verdict {
	return verdict{warnings: []string{policyKey + ": the Pod's DNS settings are unchanged: " + why.Error()}}
}

// policyRequest is what a Pod itself requests.
type policyRequest int

const (
	requestsNothing policyRequest = iota // its Namespace decides
	requestsPolicy
	declinesPolicy
)

func requestOf(pod *corev1.Pod) (policyRequest, error) {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return declinesPolicy, nil // the kubelet runs it already, from a file
	}
	if isAutopath(string(pod.Spec.DNSPolicy)) {
		return requestsPolicy, nil
	}
	switch value, there := pod.Annotations[policyKey]; {
	case !there:
		return requestsNothing, nil
	case isAutopath(value):
		return requestsPolicy, nil
	case value == "" || value == "off":
		return declinesPolicy, nil
	default:
		return declinesPolicy, fmt.Errorf("%.64q is not %s or off", value, dnsconfig.ClusterFirstWithAutopath)
	}
}

func isAutopath(policy string) bool {
	return policy == string(dnsconfig.ClusterFirstWithAutopath) || policy == "clusterFirstWithAutopath"
}

// obstacleOf returns why a Pod cannot have the policy.
func obstacleOf(s *corev1.PodSpec) error {
	switch {
	case s.HostNetwork:
		return errors.New("it uses the network of the node")
	case s.DNSPolicy != "" && s.DNSPolicy != corev1.DNSClusterFirst && !isAutopath(string(s.DNSPolicy)):
		return fmt.Errorf("its dnsPolicy is %.64s", s.DNSPolicy)
	}
	return nil
}

// resolve returns the Pod's dnsConfig by the policy, merged with its own. It returns an
// error if a part of the latter would be lost.
func (m *mutator) resolve(pod *corev1.Pod, namespace *corev1.Namespace) (*corev1.PodDNSConfig, error) {
	node := m.node
	subject := podSubject(namespace.Name, pod)
	p := subject.Settings()
	p.Policy = dnsconfig.ClusterFirstWithAutopath
	if errs := dnsconfig.Validate(p); len(errs) > 0 {
		return nil, errs[0]
	}
	own := p.DNSConfig
	if text, there := namespace.Annotations[ndotsKey]; there {
		if n, err := strconv.Atoi(text); err != nil || n < 0 || n > maxNDots {
			return nil, fmt.Errorf("annotation %s of namespace %s: %.64q is not between 0 and %d", ndotsKey, namespace.Name,
				text, maxNDots)
		}
		p.DNSConfig = withOption(own, resolvconf.Option{Name: "ndots", Value: text})
	}
	if text, there := namespace.Annotations[nameserversKey]; there {
		var err error
		if node.ClusterDNS, err = parseAddrs(text); err != nil {
			return nil, fmt.Errorf("annotation %s of namespace %s: %w", nameserversKey, namespace.Name, err)
		}
	}
	result := dnsconfig.Resolve(p, node)
	for _, w := range result.Warnings {
		if w.Reason != "" { // something is omitted
			return nil, errors.New(w.String())
		}
	}
	if lost := lostOf(own, result.Config); lost != "" {
		return nil, fmt.Errorf("dnsConfig has %.64q, which no resolv.conf can hold", lost)
	}
	return dnsConfig(result.Config), nil
}

// withOption returns c with an option before all others, so that one of the same name
// in c overrides it.
func withOption(c *dnsconfig.DNSConfig, o resolvconf.Option) *dnsconfig.DNSConfig {
	if c == nil {
		c = new(dnsconfig.DNSConfig)
	}
	return &dnsconfig.DNSConfig{
		Nameservers: c.Nameservers, Searches: c.Searches, Options: slices.Concat([]resolvconf.Option{o}, c.Options),
	}
}

// ParseNameserver parses the address of a nameserver that Pods can reach: not the
// unspecified address, and not a loopback address, which in a Pod is the Pod's own.
func ParseNameserver(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%.64q is not an address", text)
	}
	if addr = addr.Unmap(); addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%s is not an address that Pods can query", addr)
	}
	return addr, nil
}

// parseAddrs parses a comma-separated list of addresses.
func parseAddrs(text string) (addrs []netip.Addr, err error) {
	for part := range strings.SplitSeq(text, ",") {
		addr, err := ParseNameserver(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// lostOf returns the first item of a Pod's own dnsConfig that c lacks, "" if there is
// none. An option of which one of two occurrences remains is not lost.
func lostOf(own *dnsconfig.DNSConfig, c resolvconf.Config) string {
	if own == nil {
		return ""
	}
	for _, text := range own.Nameservers {
		if addr, err := netip.ParseAddr(text); err != nil || !slices.Contains(c.Nameservers, addr) {
			return text
		}
	}
	for _, search := range own.Searches {
		if !slices.Contains(c.Searches, search) {
			return search
		}
	}
	for _, o := range own.Options {
		name, _, _ := strings.Cut(o.String(), ":")
		if !slices.ContainsFunc(c.Options, func(held resolvconf.Option) bool { return held.Name == name }) {
			return o.String()
		}
	}
	return ""
}

func dnsConfig(c resolvconf.Config) *corev1.PodDNSConfig {
	made := &corev1.PodDNSConfig{Searches: c.Searches}
	for _, addr := range c.Nameservers {
		made.Nameservers = append(made.Nameservers, addr.String())
	}
	for _, o := range c.Options {
		option := corev1.PodDNSConfigOption{Name: o.Name}
		if o.Value != "" {
			option.Value = &o.Value
		}
		made.Options = append(made.Options, option)
	}
	return made
}

// patchOf returns the patch that sets the policy None and a dnsConfig. Fields of
// dnsConfig that this program does not know stay.
func patchOf(s *corev1.PodSpec, made *corev1.PodDNSConfig) []operation {
	patch := []operation{{"add", "/spec/dnsPolicy", corev1.DNSNone}}
	if s.DNSConfig == nil {
		return append(patch, operation{"add", "/spec/dnsConfig", made})
	}
	return append(patch,
		operation{"add", "/spec/dnsConfig/nameservers", made.Nameservers},
		operation{"add", "/spec/dnsConfig/searches", made.Searches},
		operation{"add", "/spec/dnsConfig/options", made.Options},
	)
}
