// Package apiobject builds API objects from declared objects and from what a control
// plane added: Services with their addresses and ports, EndpointSlices, and Pods with
// their addresses. The objects are as in "kubectl get -o yaml": fields for naming and
// networking have the API server's defaults (k8s.io/kubernetes, pkg/apis/core/v1 and
// pkg/apis/discovery/v1, defaults.go).
package apiobject

import (
	"cmp"
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"portolan.dev/portolan/internal/cluster"
)

// Simulated is the annotation of Pods that do not run; its value is "true".
const Simulated = "portolan.dev/simulated"

// Builder builds API objects from a model and declared objects.
type Builder struct {
	Store *cluster.Store
	// Declared returns an object as declared, in JSON; nil if it was not declared.
	Declared func(cluster.Kind, cluster.Key) []byte
	// Slices returns the EndpointSlices generated for a Service; nil if no control plane
	// is simulated.
	Slices func(cluster.Key) []*discoveryv1.EndpointSlice
}

// Choice selects objects of a kind; in all namespaces if Namespace is empty or the kind is
// cluster scoped, and with any name if Name is empty.
type Choice struct {
	Kind            cluster.Kind
	Namespace, Name string
}

// Object is an API object with apiVersion and kind: a *corev1.Service, a
// *discoveryv1.EndpointSlice, a *corev1.Pod or, of any other kind,
// *unstructured.Unstructured.
type Object = metav1.Object

// Objects returns the chosen objects, sorted by namespace and name. It returns an error
// if a declared object cannot be decoded.
func (b *Builder) Objects(choice Choice) (objects []Object, err error) {
	b.Store.View(func(v *cluster.View) { objects, err = b.objects(v, choice) })
	slices.SortFunc(objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, err
}

func (b *Builder) objects(v *cluster.View, choice Choice) (objects []Object, err error) {
	appendChosen := func(key cluster.Key, build func() (Object, error)) {
		if err != nil || choice.Namespace != "" && key.Namespace != "" && key.Namespace != choice.Namespace ||
			choice.Name != "" && key.Name != choice.Name {
			return
		}
		var o Object
		if o, err = build(); err == nil {
			objects = append(objects, o)
		}
	}
	switch choice.Kind {
	case cluster.KindService:
		for s := range v.Services() {
			appendChosen(s.Key, func() (Object, error) { return b.service(s) })
		}
	case cluster.KindEndpointSlice:
		for s := range v.EndpointSlices() {
			appendChosen(s.Key, func() (Object, error) { return b.endpointSlice(s) })
		}
	case cluster.KindPod:
		for p := range v.Pods() {
			appendChosen(p.Key, func() (Object, error) { return b.pod(v, p) })
		}
	default:
		for o := range v.Objects(choice.Kind) {
			key := o.Ref().Key
			appendChosen(key, func() (Object, error) { return b.other(choice.Kind, key) })
		}
	}
	return objects, err
}

// declared decodes a declared object. It returns false if the object was not declared.
func (b *Builder) declared(kind cluster.Kind, key cluster.Key, into any) (ok bool, err error) {
	text := b.Declared(kind, key)
	if text == nil {
		return false, nil
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(text, into); err != nil {
		return false, fmt.Errorf("decode %s %s: %w", kind, key, err)
	}
	return true, nil
}

// meta returns the metadata of an object that was not declared.
func meta(key cluster.Key) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}
