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

// What people write on Pods and Namespaces.
const (
	// policyKey is an annotation of a Pod, or a label of a Namespace for all
	// its Pods that do not have that annotation: the policy's name, with a
	// large or a small c, or off. Nothing is off, too.
	policyKey = "portolan.dev/dns-policy"
	// ndotsKey and nameserversKey are annotations of a Namespace, for its Pods
	// that get the policy: ndots, and addresses with commas between them in the
	// place of the cluster's DNS, such as that of an agent on each node.
	ndotsKey       = "portolan.dev/ndots"
	nameserversKey = "portolan.dev/nameservers"
)

// maxNDots is what resolvers take (resolv.conf(5)).
const maxNDots = 15

// Namespaces reads Namespaces.
type Namespaces interface {
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
}

// mutator gives Pods the policy ClusterFirstWithAutopath, as the policy None
// with what the former means. A Pod wants it that is annotated, that stands in a
// labelled Namespace, or that has it as its dnsPolicy, which is how the KEP
// spells it and what the API server refuses unless it is replaced.
//
// Only ClusterFirst is replaced. Who wrote None or Default has decided; and in
// the node's network ClusterFirst is Default, so that podresolv has the policy
// be Default there, too, and ClusterFirstWithHostNet is another one.
type mutator struct {
	namespaces Namespaces
	node       dnsconfig.NodeSettings // as it is to the Pods
}

func (m *mutator) review(ctx context.Context, r *admissionv1.AdmissionRequest) (v verdict, err error) {
	if r.Operation != admissionv1.Create || r.Resource != pods || r.SubResource != "" {
		return verdict{}, nil
	}
	pod := new(corev1.Pod)
	if err := decode(r.Object.Raw, pod); err != nil {
		return verdict{}, fmt.Errorf("the Pod can't be read: %w", err)
	}
	wish, err := wishOf(pod)
	if err != nil {
		return unchanged(err), nil
	}
	obstacle := obstacleOf(&pod.Spec)
	switch {
	case wish == wantsNot, wish == saysNothing && obstacle != nil, pod.Spec.DNSPolicy == corev1.DNSNone:
		return verdict{}, nil
	case obstacle != nil:
		return unchanged(obstacle), nil
	}
	namespace, err := m.namespaces.Namespace(ctx, r.Namespace)
	if err != nil {
		return verdict{}, fmt.Errorf("namespace %s can't be read: %w", r.Namespace, err)
	}
	if wish == saysNothing && !isAutopath(namespace.Labels[policyKey]) {
		return verdict{}, nil
	}
	made, err := m.resolve(pod, namespace)
	if err != nil {
		return unchanged(err), nil
	}
	return verdict{patch: patchOf(&pod.Spec, made)}, nil
}

// unchanged lets a Pod through that should have had the policy.
func unchanged(why error) verdict {
	return verdict{warnings: []string{policyKey + ": the Pod's DNS is left as it is: " + why.Error()}}
}

// wish is what a Pod itself says of the policy.
type wish int

const (
	saysNothing wish = iota // its Namespace decides
	wants
	wantsNot
)

func wishOf(pod *corev1.Pod) (wish, error) {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return wantsNot, nil // it runs already, as a file on the node has it
	}
	if isAutopath(string(pod.Spec.DNSPolicy)) {
		return wants, nil
	}
	switch value, there := pod.Annotations[policyKey]; {
	case !there:
		return saysNothing, nil
	case isAutopath(value):
		return wants, nil
	case value == "" || value == "off":
		return wantsNot, nil
	default:
		return wantsNot, fmt.Errorf("%.64q is not %s or off", value, dnsconfig.ClusterFirstWithAutopath)
	}
}

func isAutopath(policy string) bool {
	return policy == string(dnsconfig.ClusterFirstWithAutopath) || policy == "clusterFirstWithAutopath"
}

// obstacleOf says why a Pod can't have the policy.
func obstacleOf(s *corev1.PodSpec) error {
	switch {
	case s.HostNetwork:
		return errors.New("it is in the node's network")
	case s.DNSPolicy != "" && s.DNSPolicy != corev1.DNSClusterFirst && !isAutopath(string(s.DNSPolicy)):
		return fmt.Errorf("its dnsPolicy is %.64s", s.DNSPolicy)
	}
	return nil
}

// resolve is the Pod's dnsConfig by the policy, with what it has of its own. It
// fails where the Pod would lose something of that.
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
			return nil, fmt.Errorf("annotation %s of namespace %s: %.64q is not between 0 and %d", ndotsKey, namespace.Name, text, maxNDots)
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
		if w.Reason != "" { // something is left out
			return nil, errors.New(w.String())
		}
	}
	if lost := lostOf(own, result.Config); lost != "" {
		return nil, fmt.Errorf("dnsConfig has %.64q, which no resolv.conf can hold", lost)
	}
	return dnsConfig(result.Config), nil
}

// withOption is c with an option before all others: one of the same name
// replaces it.
func withOption(c *dnsconfig.DNSConfig, o resolvconf.Option) *dnsconfig.DNSConfig {
	if c == nil {
		c = new(dnsconfig.DNSConfig)
	}
	return &dnsconfig.DNSConfig{
		Nameservers: c.Nameservers, Searches: c.Searches, Options: slices.Concat([]resolvconf.Option{o}, c.Options),
	}
}

// ParseNameserver reads the address of a nameserver that Pods can ask: it is not
// the unspecified one, and in a Pod 127.0.0.1 is the Pod's own.
func ParseNameserver(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%.64q is not an address", text)
	}
	if addr = addr.Unmap(); addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%s is no address that Pods can ask", addr)
	}
	return addr, nil
}

// parseAddrs reads addresses with commas between them.
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

// lostOf is what c does not hold of a Pod's own dnsConfig, "" if it holds all. An
// option that is given twice counts as held.
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

// patchOf gives a Pod the policy None with a dnsConfig. Members of dnsConfig
// that this program does not know stay.
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
