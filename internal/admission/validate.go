package admission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/podresolv"
)

// Finding is what is wrong with an object.
type Finding struct {
	Rule    string
	Field   string // its path, such as "spec.externalName"; "" if it is none
	Message string
}

// String is the finding in one line.
func (f Finding) String() string {
	if f.Field == "" {
		return f.Rule + ": " + f.Message
	}
	return f.Rule + ": " + f.Field + ": " + f.Message
}

// Reviewer finds what is wrong with an object that is created or changed: one of
// the API's types, in a namespace, which the object itself may not say. It must
// not change the object.
type Reviewer interface {
	Review(namespace string, o runtime.Object) []Finding
}

// The rules that are built in.
const (
	// RuleFQDN: with setHostnameAsFQDN a Pod does not start whose FQDN is longer
	// than the kernel takes.
	RuleFQDN = "fqdn-too-long"
	// RuleDNSConfig: nameservers or search domains are left out, since there are
	// too many, or they are too long.
	RuleDNSConfig = "dns-config-over-limits"
	// RuleExternalName: an ExternalName is an address.
	RuleExternalName = "external-name-is-address"
)

// Rules lists the rules that are built in.
func Rules() []string { return []string{RuleDNSConfig, RuleExternalName, RuleFQDN} }

// kinds are what reviews are of, by resource.
var kinds = map[metav1.GroupVersionResource]func() runtime.Object{
	pods:                 func() runtime.Object { return new(corev1.Pod) },
	services:             func() runtime.Object { return new(corev1.Service) },
	apps("deployments"):  func() runtime.Object { return new(appsv1.Deployment) },
	apps("replicasets"):  func() runtime.Object { return new(appsv1.ReplicaSet) },
	apps("statefulsets"): func() runtime.Object { return new(appsv1.StatefulSet) },
	apps("daemonsets"):   func() runtime.Object { return new(appsv1.DaemonSet) },
	batch("jobs"):        func() runtime.Object { return new(batchv1.Job) },
	batch("cronjobs"):    func() runtime.Object { return new(batchv1.CronJob) },
}

var (
	pods     = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	services = metav1.GroupVersionResource{Version: "v1", Resource: "services"}
)

func apps(resource string) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
}

func batch(resource string) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: "batch", Version: "v1", Resource: resource}
}

// validator asks the reviewers about objects.
type validator struct {
	reviewers    []Reviewer
	deny, ignore []string // rules
}

func newValidator(cfg Config, more []Reviewer) *validator {
	builtIn := dnsRules{podresolv.Node{ClusterDomain: cfg.ClusterDomain, ClusterDNS: cfg.ClusterDNS}}
	return &validator{reviewers: append([]Reviewer{builtIn}, more...), deny: cfg.Deny, ignore: cfg.Ignore}
}

func (v *validator) review(_ context.Context, r *admissionv1.AdmissionRequest) (verdict, error) {
	newObject, known := kinds[r.Resource]
	if !known || r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return verdict{}, nil
	}
	o := newObject()
	if err := decode(r.Object.Raw, o); err != nil {
		return verdict{}, fmt.Errorf("the object can't be read: %w", err)
	}
	var found verdict
	var denials []string
	for _, reviewer := range v.reviewers {
		for _, f := range reviewer.Review(r.Namespace, o) {
			switch {
			case slices.Contains(v.ignore, f.Rule):
			case slices.Contains(v.deny, f.Rule):
				denials = append(denials, f.String())
			default:
				found.warnings = append(found.warnings, f.String())
			}
		}
	}
	found.denied = strings.Join(denials, "; ")
	return found, nil
}

// dnsRules are the rules that are built in. What a node's resolv.conf adds is
// not known.
type dnsRules struct{ node podresolv.Node }

func (d dnsRules) Review(namespace string, o runtime.Object) []Finding {
	if s, ok := o.(*corev1.Service); ok {
		return externalName(s)
	}
	pod, ok := podOf(namespace, o)
	if !ok {
		return nil
	}
	var found []Finding
	_, err := podresolv.HostnameOf(pod, d.node)
	if long := (*podresolv.FQDNError)(nil); errors.As(err, &long) {
		found = append(found, Finding{RuleFQDN, long.Field, long.Error()})
	}
	for _, w := range podresolv.Resolve(pod, d.node).Warnings {
		if w.Reason == podresolv.DNSConfigForming {
			found = append(found, Finding{RuleDNSConfig, w.Field, w.Message})
		}
	}
	return found
}

func externalName(s *corev1.Service) []Finding {
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		return nil
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(s.Spec.ExternalName, ".")); err != nil {
		return nil
	}
	return []Finding{{RuleExternalName, "spec.externalName", fmt.Sprintf(
		"%s is an address, and must be a name; for addresses use a Service without selector and an EndpointSlice", s.Spec.ExternalName)}}
}
