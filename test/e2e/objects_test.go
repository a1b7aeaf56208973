package e2e

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portolan.dev/portolan/test/e2e/manifests"
)

type object = manifests.Object

// resource is where the objects of a kind are.
type resource struct {
	schema.GroupVersionResource
	stored string // below which key the API server stores them
}

var resources = map[string]resource{
	"Namespace":     {core("namespaces"), "/registry/namespaces/"},
	"Service":       {core("services"), "/registry/services/specs/"},
	"Endpoints":     {core("endpoints"), "/registry/services/endpoints/"},
	"Pod":           {core("pods"), "/registry/pods/"},
	"Node":          {core("nodes"), "/registry/minions/"},
	"EndpointSlice": {schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, "/registry/endpointslices/"},
}

func core(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

// nameOf is what an object is called in messages and tables.
func nameOf(o object) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// complete adds what the API server wants, answers don't show, and manifests of
// scenarios leave out.
func complete(o object) {
	switch o.GetKind() {
	case "Service":
		completeService(o)
	case "Pod":
		if containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers"); len(containers) == 0 {
			set(o, []any{map[string]any{"name": "main", "image": "main"}}, "spec", "containers")
		}
	}
}

func completeService(o object) {
	addresses, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "clusterIPs")
	if len(addresses) > 0 {
		set(o, addresses[0], "spec", "clusterIP")
	}
	if len(addresses) > 1 {
		set(o, "RequireDualStack", "spec", "ipFamilyPolicy")
	}
	address, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP")
	external, _, _ := unstructured.NestedString(o.Object, "spec", "externalName")
	if _, ok, _ := unstructured.NestedSlice(o.Object, "spec", "ports"); !ok && address != "None" && external == "" {
		const discard = 9
		set(o, []any{map[string]any{"port": int64(discard)}}, "spec", "ports")
	}
}

func set(o object, value any, fields ...string) {
	if err := unstructured.SetNestedField(o.Object, value, fields...); err != nil {
		panic(err) // a scalar where there must be a mapping
	}
}
