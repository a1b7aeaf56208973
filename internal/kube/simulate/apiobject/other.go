package apiobject

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// other returns an object of a kind that a control plane adds nothing to: as declared or, if
// it was not declared, with its name only.
func (b *Builder) other(kind cluster.Kind, key cluster.Key) (Object, error) {
	o := new(unstructured.Unstructured)
	if _, err := b.declared(kind, key, &o.Object); err != nil {
		return nil, err
	}
	if o.Object == nil {
		o.Object = make(map[string]any)
	}
	o.SetGroupVersionKind(declaration(kind).Group.WithKind(kind.String()))
	o.SetName(key.Name)
	if key.Namespace != "" {
		o.SetNamespace(key.Namespace)
	}
	return o, nil
}

// declaration returns how the API declares a kind.
func declaration(kind cluster.Kind) object.Kind {
	i := slices.IndexFunc(object.Kinds, func(k object.Kind) bool { return k.Model == kind })
	return object.Kinds[i]
}

// ParseSelector parses a label selector as kubectl does, and returns a function that reports
// whether it selects an object. An empty one selects all.
func ParseSelector(text string) (func(Object) bool, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, err
	}
	return func(o Object) bool { return selector.Matches(labels.Set(o.GetLabels())) }, nil
}

// Prefix returns what stands before a slash and the name of an object of a kind in kubectl's
// output, such as deployment.apps.
func Prefix(kind cluster.Kind) string {
	name := strings.ToLower(kind.String())
	if group := declaration(kind).Group.Group; group != "" {
		name += "." + group
	}
	return name
}

// Resource returns the name of a kind in URLs, such as deployments.
func Resource(kind cluster.Kind) string { return declaration(kind).Resource }

// shortNames are kubectl's, or "" for a kind without one: those of the API server
// (k8s.io/kubernetes, pkg/registry) and of the CustomResourceDefinitions.
var shortNames = map[cluster.Kind]string{
	cluster.KindNamespace:     "ns",
	cluster.KindService:       "svc",
	cluster.KindEndpointSlice: "",
	cluster.KindPod:           "po",
	cluster.KindNode:          "no",
	cluster.KindDeployment:    "deploy",
	cluster.KindStatefulSet:   "sts",
	cluster.KindDaemonSet:     "ds",
	cluster.KindJob:           "",
	cluster.KindCronJob:       "cj",
	cluster.KindNetworkPolicy: "netpol",
	cluster.KindServiceImport: "svcim",
	cluster.KindIngress:       "ing",
	cluster.KindGateway:       "gtw",
	cluster.KindHTTPRoute:     "",
	cluster.KindServiceCIDR:   "",

	cluster.KindClusterNetworkPolicy: "cnp",
	cluster.KindIngressClass:         "",
	cluster.KindGatewayClass:         "gc",
	cluster.KindListenerSet:          "lset",
	cluster.KindReferenceGrant:       "refgrant",
	cluster.KindSecret:               "",
	cluster.KindConfigMap:            "cm",
	cluster.KindGRPCRoute:            "",
	cluster.KindTLSRoute:             "",
	cluster.KindTCPRoute:             "",
	cluster.KindUDPRoute:             "",
	cluster.KindBackendTLSPolicy:     "btlspolicy",
	cluster.KindRoutePolicy:          "",
	cluster.KindBackendTrafficPolicy: "xbtrafficpolicy",
}

// ShortName returns the short name of a kind, such as deploy, or "" if it has none.
func ShortName(kind cluster.Kind) string { return shortNames[kind] }
