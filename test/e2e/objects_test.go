package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// object is an API object as a manifest spells it.
type object = *unstructured.Unstructured

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

// readManifests decodes all documents of the files that are manifests by their
// names. Lists are taken apart.
func readManifests(files map[string][]byte) (all []object, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			continue
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(bytes.NewReader(files[name])), 4096)
		for {
			var content map[string]any
			if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(content) > 0 {
				all = append(all, withoutList(&unstructured.Unstructured{Object: content})...)
			}
		}
	}
	return all, nil
}

func withoutList(o object) (items []object) {
	if !o.IsList() {
		return []object{o}
	}
	_ = o.EachListItem(func(item runtime.Object) error {
		items = append(items, item.(object))
		return nil
	})
	return items
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
