// Package object decodes objects of the Kubernetes API into the model's types.
//
// Kinds lists them: one line for each kind ties the model's kind to its API
// group, resource name, Go type and decoder. To add a kind, see package cluster.
//
// Decoders reject values that the API server rejects (k8s.io/kubernetes,
// pkg/apis/core/validation), in the fields that the model has and with the API's
// field paths, so that manifests that never reached an API server are held to
// the same rules. Other fields may be missing that the API server requires.
package object

import (
	"encoding/base64"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// in prefixes the fields of errs with a path: names of fields and indexes of
// lists, outermost first. Paths are built only for errors, as most of many
// objects have none.
func in(errs field.ErrorList, place ...any) field.ErrorList {
	if len(errs) == 0 {
		return nil
	}
	var path *field.Path
	for _, step := range place {
		switch step := step.(type) {
		case string:
			path = path.Child(step)
		case int:
			path = path.Index(step)
		}
	}
	for _, e := range errs {
		if e.Field != "" {
			e.Field = "." + e.Field
		}
		e.Field = path.String() + e.Field
	}
	return errs
}

// nowhere returns errors whose field is set later, see in.
func nowhere(errs ...*field.Error) field.ErrorList {
	for _, e := range errs {
		e.Field = ""
	}
	return errs
}

// key returns the key of a namespaced object. Without a namespace it is in the
// namespace default.
func key(m *metav1.ObjectMeta, validName func(string) []string) (cluster.Key, field.ErrorList) {
	k := cluster.Key{Namespace: m.Namespace, Name: m.Name}
	if k.Namespace == "" {
		k.Namespace = metav1.NamespaceDefault
	}
	errs := in(checkName(k.Name, validName), "metadata", "name")
	return k, append(errs, in(checkName(k.Namespace, validation.IsDNS1123Label), "metadata", "namespace")...)
}

func checkName(name string, valid func(string) []string) field.ErrorList {
	if name == "" {
		return nowhere(field.Required(nil, ""))
	}
	if isLabel(name) {
		return nil // faster than the library
	}
	var errs field.ErrorList
	for _, msg := range valid(name) {
		errs = append(errs, nowhere(field.Invalid(nil, name, msg))...)
	}
	return errs
}

// isLabel reports whether a name is one DNS label in lower case (RFC 1123,
// section 2.1), which is a valid name in all fields that are checked here.
func isLabel(name string) bool {
	if len(name) > validation.DNS1123LabelMaxLength || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// optionalLabel checks a field that is empty or one DNS label.
func optionalLabel(label string) field.ErrorList {
	if label == "" {
		return nil
	}
	return checkName(label, validation.IsDNS1123Label)
}

// address parses a field that is one address, without a zone and not an
// IPv4-mapped IPv6 address.
func address(text string) (netip.Addr, field.ErrorList) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, nowhere(field.Invalid(nil, text,
			"must be an IPv4 or IPv6 address, such as 10.9.8.7 or 2001:db8::ffff"))
	}
	return addr, nil
}

// prefix parses a field that is a range of addresses, not of IPv4-mapped IPv6 addresses.
func prefix(text string) (netip.Prefix, field.ErrorList) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return p, nowhere(field.Invalid(nil, text, "must be a range of addresses, such as 10.9.8.0/24 or 2001:db8::/64"))
	}
	return p.Masked(), nil
}

func protocol(p corev1.Protocol) (cluster.Protocol, field.ErrorList) {
	switch p {
	case "":
		return cluster.TCP, nil
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return cluster.Protocol(p), nil
	}
	return "", nowhere(field.NotSupported(nil, p,
		[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}))
}

const maxPort = 1<<16 - 1

// portNumber checks a port's number.
func portNumber(n int32) (uint16, field.ErrorList) {
	if n < 1 || n > maxPort {
		return 0, nowhere(field.Invalid(nil, n, "must be between 1 and 65535, inclusive"))
	}
	return uint16(n), nil
}

// Namespace converts a Namespace.
func Namespace(n *corev1.Namespace) (*cluster.Namespace, field.ErrorList) {
	errs := in(checkName(n.Name, validation.IsDNS1123Label), "metadata", "name")
	return &cluster.Namespace{Name: n.Name, Labels: n.Labels}, errs
}

// WireGuardKey is the annotation of a Node with the public key of its end of encrypted tunnels, in base64 as of wg(8).
const WireGuardKey = "network.portolan.dev/wireguard-public-key"

// Node converts a Node. It keeps only those addresses that are IP addresses, not
// names.
func Node(n *corev1.Node) (*cluster.Node, field.ErrorList) {
	node := &cluster.Node{
		Name:     n.Name,
		Zone:     n.Labels[corev1.LabelTopologyZone],
		MilliCPU: n.Status.Allocatable.Cpu().MilliValue(),
		Created:  meta(&n.ObjectMeta).Created,
	}
	_, controlPlane := n.Labels["node-role.kubernetes.io/control-plane"]
	_, master := n.Labels["node-role.kubernetes.io/master"]
	node.ControlPlane = controlPlane || master
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		node.Ready = node.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	for _, a := range n.Status.Addresses {
		addr, bad := address(a.Address)
		if len(bad) > 0 {
			continue
		}
		node.Addresses = append(node.Addresses, addr)
		if a.Type == corev1.NodeInternalIP {
			node.InternalIPs = append(node.InternalIPs, addr)
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, bad := prefix(text); len(bad) == 0 {
			node.PodCIDRs = append(node.PodCIDRs, p)
		}
	}
	node.WireGuardKey = publicKey(n.Annotations[WireGuardKey])
	node.Labels = n.Labels
	node.Leaving = n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "ToBeDeletedByClusterAutoscaler" // k8s.io/autoscaler, utils/taints
	})
	node.Cordoned = n.Spec.Unschedulable
	return node, in(checkName(n.Name, validation.IsDNS1123Subdomain), "metadata", "name")
}

// publicKey decodes a key of Curve25519 (RFC 7748, section 5); the zero key if the text is none.
func publicKey(text string) (key [32]byte) {
	if data, err := base64.StdEncoding.DecodeString(text); err == nil && len(data) == len(key) {
		key = [32]byte(data)
	}
	return key
}

// ServiceCIDR converts a ServiceCIDR.
func ServiceCIDR(c *networkingv1.ServiceCIDR) (*cluster.ServiceCIDR, field.ErrorList) {
	errs := in(checkName(c.Name, validation.IsDNS1123Subdomain), "metadata", "name")
	out := &cluster.ServiceCIDR{Name: c.Name}
	for i, text := range c.Spec.CIDRs {
		p, bad := prefix(text)
		errs = append(errs, in(bad, "spec", "cidrs", i)...)
		out.CIDRs = append(out.CIDRs, p)
	}
	return out, errs
}
