// Package apiobject puts API objects together from what was declared and from what
// a control plane filled in: Services with their addresses and ports,
// EndpointSlices, Pods with their addresses. They are as "kubectl get -o yaml"
// shows them: fields that the API server gives a default have it, as far as they
// are about naming and networking (k8s.io/kubernetes, pkg/apis/core/v1 and
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

// Simulated is the annotation of Pods that do not run: "true".
const Simulated = "portolan.dev/simulated"

// Builder builds API objects from a model and from what was declared.
type Builder struct {
	Store *cluster.Store
	// Declared is an object as it was declared, as JSON; nil of one that was not.
	Declared func(cluster.Kind, cluster.Key) []byte
	// Slices are the EndpointSlices that were made for a Service; nil where
	// nobody makes any.
	Slices func(cluster.Key) []*discoveryv1.EndpointSlice
}

// Choice is the objects that are wanted: of one kind, one of Kinds; of one
// namespace, unless that is empty; of one name, likewise.
type Choice struct {
	Kind            cluster.Kind
	Namespace, Name string
}

// Kinds lists the kinds of objects that there are.
func Kinds() []cluster.Kind {
	return []cluster.Kind{cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod}
}

// Object is an object of the API: *corev1.Service, *discoveryv1.EndpointSlice or
// *corev1.Pod, with apiVersion and kind.
type Object = metav1.Object

// Objects are those that are chosen, by namespace and name.
func (b *Builder) Objects(choice Choice) (objects []Object, err error) {
	b.Store.View(func(v *cluster.View) { objects, err = b.objects(v, choice) })
	slices.SortFunc(objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, err
}

func (b *Builder) objects(v *cluster.View, choice Choice) (objects []Object, err error) {
	add := func(key cluster.Key, put func() (Object, error)) {
		if err != nil || choice.Namespace != "" && key.Namespace != choice.Namespace || choice.Name != "" && key.Name != choice.Name {
			return
		}
		var o Object
		if o, err = put(); err == nil {
			objects = append(objects, o)
		}
	}
	switch choice.Kind {
	case cluster.KindService:
		for s := range v.Services() {
			add(s.Key, func() (Object, error) { return b.service(s) })
		}
	case cluster.KindEndpointSlice:
		for s := range v.EndpointSlices() {
			add(s.Key, func() (Object, error) { return b.endpointSlice(s) })
		}
	case cluster.KindPod:
		for p := range v.Pods() {
			add(p.Key, func() (Object, error) { return b.pod(v, p) })
		}
	default:
		err = fmt.Errorf("apiobject: no kind %s", choice.Kind)
	}
	return objects, err
}

// declared decodes an object as it was declared; ok is false of one that was not.
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

// meta is the metadata of an object that nobody declared.
func meta(key cluster.Key) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}
