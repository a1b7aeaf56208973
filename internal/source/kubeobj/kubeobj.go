// Package kubeobj turns objects of the Kubernetes API into the model's types.
//
// It refuses values that the API server refuses, in the fields that the model
// keeps and with the API's own field paths, so that manifests that never met
// an API server are held to the same rules. Fields that the API server wants
// for other reasons than naming may be missing.
package kubeobj

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

var metadata = field.NewPath("metadata")

// key is the key of an object that has a namespace; an object without one is
// in the namespace default.
func key(m *metav1.ObjectMeta, validName func(string) []string) (cluster.Key, field.ErrorList) {
	k := cluster.Key{Namespace: m.Namespace, Name: m.Name}
	if k.Namespace == "" {
		k.Namespace = metav1.NamespaceDefault
	}
	errs := checkName(metadata.Child("name"), k.Name, validName)
	return k, append(errs, checkName(metadata.Child("namespace"), k.Namespace, validation.IsDNS1123Label)...)
}

func checkName(path *field.Path, name string, valid func(string) []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for _, msg := range valid(name) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}

// optionalLabel checks a field that is empty or one DNS label.
func optionalLabel(path *field.Path, label string) field.ErrorList {
	if label == "" {
		return nil
	}
	return checkName(path, label, validation.IsDNS1123Label)
}

// address parses a field that is one address, without a zone and not an IPv4
// address in IPv6's clothes.
func address(path *field.Path, text string) (netip.Addr, field.ErrorList) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, field.ErrorList{field.Invalid(path, text, "must be an IPv4 or IPv6 address, such as 10.9.8.7 or 2001:db8::ffff")}
	}
	return addr, nil
}

func protocol(path *field.Path, p corev1.Protocol) (cluster.Protocol, field.ErrorList) {
	switch p {
	case "":
		return cluster.TCP, nil
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return cluster.Protocol(p), nil
	}
	return "", field.ErrorList{field.NotSupported(path, p, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP})}
}

// portNumber checks a port's number.
func portNumber(path *field.Path, n int32) (uint16, field.ErrorList) {
	if n < 1 || n > 65535 {
		return 0, field.ErrorList{field.Invalid(path, n, "must be between 1 and 65535, inclusive")}
	}
	return uint16(n), nil
}

// Namespace converts a Namespace.
func Namespace(n *corev1.Namespace) (*cluster.Namespace, field.ErrorList) {
	return &cluster.Namespace{Name: n.Name}, checkName(metadata.Child("name"), n.Name, validation.IsDNS1123Label)
}

// Node converts a Node. Of its addresses only those are kept that are IP
// addresses: others are names.
func Node(n *corev1.Node) (*cluster.Node, field.ErrorList) {
	node := &cluster.Node{Name: n.Name}
	for _, a := range n.Status.Addresses {
		if addr, bad := address(nil, a.Address); len(bad) == 0 {
			node.Addresses = append(node.Addresses, addr)
		}
	}
	return node, checkName(metadata.Child("name"), n.Name, validation.IsDNS1123Subdomain)
}

// Pod converts a Pod.
func Pod(p *corev1.Pod) (*cluster.Pod, field.ErrorList) {
	k, errs := key(&p.ObjectMeta, validation.IsDNS1123Subdomain)
	pod := &cluster.Pod{
		Key:       k,
		Labels:    p.Labels,
		Finished:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Hostname:  p.Spec.Hostname,
		Subdomain: p.Spec.Subdomain,
		Node:      p.Spec.NodeName,
	}
	spec := field.NewPath("spec")
	errs = append(errs, optionalLabel(spec.Child("hostname"), pod.Hostname)...)
	errs = append(errs, optionalLabel(spec.Child("subdomain"), pod.Subdomain)...)
	status := field.NewPath("status")
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		addr, bad := address(status.Child("podIP"), p.Status.PodIP)
		pod.IPs, errs = append(pod.IPs, addr), append(errs, bad...)
	}
	for i, ip := range p.Status.PodIPs {
		addr, bad := address(status.Child("podIPs").Index(i).Child("ip"), ip.IP)
		pod.IPs, errs = append(pod.IPs, addr), append(errs, bad...)
	}
	return pod, errs
}
