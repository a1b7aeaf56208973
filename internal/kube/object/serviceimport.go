package object

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// Labels of EndpointSlices of the Multicluster Services API (KEP-1645).
const (
	labelImport        = "multicluster.kubernetes.io/service-name"
	labelSourceCluster = "multicluster.kubernetes.io/source-cluster"
)

// APIServiceImport is a ServiceImport of the API. Its types are declared here, as
// few fields of them matter, instead of depending on sigs.k8s.io/mcs-api.
type APIServiceImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   APIServiceImportSpec `json:"spec,omitzero"`
	Status map[string]any       `json:"status,omitzero"`
}

// APIServiceImportSpec is the spec of a ServiceImport.
type APIServiceImportSpec struct {
	Ports                 []APIServiceImportPort `json:"ports,omitempty"`
	IPs                   []string               `json:"ips,omitempty"`
	Type                  string                 `json:"type,omitempty"`
	IPFamilies            []string               `json:"ipFamilies,omitempty"`
	SessionAffinity       string                 `json:"sessionAffinity,omitempty"`
	SessionAffinityConfig map[string]any         `json:"sessionAffinityConfig,omitempty"`
	InternalTrafficPolicy string                 `json:"internalTrafficPolicy,omitempty"`
	TrafficDistribution   string                 `json:"trafficDistribution,omitempty"`
}

// APIServiceImportPort is a port of a ServiceImport.
type APIServiceImportPort struct {
	Name        string `json:"name,omitempty"`
	Protocol    string `json:"protocol,omitempty"`
	AppProtocol string `json:"appProtocol,omitempty"`
	Port        int32  `json:"port"`
}

// APIServiceImportList is a list of ServiceImports.
type APIServiceImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []APIServiceImport `json:"items"`
}

// DeepCopyObject implements runtime.Object. What is decoded is not changed, so that
// copies may share it.
func (s *APIServiceImport) DeepCopyObject() runtime.Object {
	c := *s
	s.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *APIServiceImportList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

var multiclusterVersion = schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha1"}

func addMulticluster(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(multiclusterVersion.WithKind("ServiceImport"), new(APIServiceImport))
	s.AddKnownTypeWithName(multiclusterVersion.WithKind("ServiceImportList"), new(APIServiceImportList))
	metav1.AddToGroupVersion(s, multiclusterVersion)
	return nil
}

// The types of ServiceImports.
const (
	typeClusterSetIP = "ClusterSetIP"
	typeHeadless     = "Headless"
)

// ServiceImport converts a ServiceImport.
func ServiceImport(s *APIServiceImport) (*cluster.ServiceImport, field.ErrorList) {
	k, errs := key(&s.ObjectMeta, validation.IsDNS1123Label)
	made := &cluster.ServiceImport{Key: k, Headless: s.Spec.Type == typeHeadless}
	if s.Spec.Type != "" && s.Spec.Type != typeClusterSetIP && s.Spec.Type != typeHeadless {
		errs = append(errs, field.NotSupported(
			field.NewPath("spec", "type"), s.Spec.Type, []string{typeClusterSetIP, typeHeadless},
		))
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		number, bad := portNumber(p.Port)
		errs = append(errs, in(bad, "spec", "ports", i, "port")...)
		proto, bad := protocol(corev1.Protocol(p.Protocol))
		errs = append(errs, in(bad, "spec", "ports", i, "protocol")...)
		errs = append(errs, in(optionalLabel(p.Name), "spec", "ports", i, "name")...)
		made.Ports = append(made.Ports, cluster.Port{Name: p.Name, Protocol: proto, Number: number})
	}
	if made.Headless {
		return made, errs
	}
	for i, text := range s.Spec.IPs {
		addr, bad := address(text)
		errs = append(errs, in(bad, "spec", "ips", i)...)
		made.IPs = append(made.IPs, addr)
	}
	return made, errs
}
