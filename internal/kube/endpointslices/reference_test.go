package endpointslices_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	typeddiscovery "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"portolan.dev/portolan/internal/cluster"
)

// reference drives the library in the plainest way: objects of the API, event by
// event, and for each event the Services that it may touch one by one, with all
// that they have listed anew.
type reference struct {
	kubernetes.Interface
	typeddiscovery.DiscoveryV1Interface
	typeddiscovery.EndpointSliceInterface

	services map[cluster.Key]*corev1.Service
	pods     map[cluster.Key]*corev1.Pod
	nodes    map[string]*corev1.Node
	slices   map[string]*discoveryv1.EndpointSlice // by name; there is one Namespace
	named    int

	library  *endpointslice.Reconciler
	topology *topologycache.TopologyCache
}

func newReference(most int32) *reference {
	r := &reference{
		services: make(map[cluster.Key]*corev1.Service), pods: make(map[cluster.Key]*corev1.Pod),
		nodes: make(map[string]*corev1.Node), slices: make(map[string]*discoveryv1.EndpointSlice), topology: topologycache.NewTopologyCache(),
	}
	r.library = endpointslice.NewReconciler(r, nodeLister{r}, most, endpointsliceutil.NewEndpointSliceTracker(), r.topology,
		&record.FakeRecorder{}, "endpointslice-controller.k8s.io", endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	return r
}

// apply makes the object at key what it is now, nil when it went, and syncs what
// that may touch.
func (r *reference) apply(key cluster.Key, now any) {
	switch now := now.(type) {
	case *corev1.Service:
		put(r.services, key, now)
		r.sync(key)
	case *corev1.Pod:
		old := r.pods[key]
		put(r.pods, key, now)
		for service, s := range r.services {
			if selects(s, old) || selects(s, now) {
				r.sync(service)
			}
		}
	case *corev1.Node:
		put(r.nodes, key.Name, now)
		r.topology.SetNodes(klog.Logger{}, slices.Collect(maps.Values(r.nodes)))
		for service := range r.services {
			r.sync(service)
		}
	}
}

func put[K comparable, V any](m map[K]*V, key K, v *V) {
	if v == nil {
		delete(m, key)
		return
	}
	m[key] = v
}

func selects(s *corev1.Service, p *corev1.Pod) bool {
	return p != nil && len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels))
}

// of lists the slices of a Service.
func (r *reference) of(key cluster.Key) (all []*discoveryv1.EndpointSlice) {
	for _, s := range r.slices {
		if s.Labels[discoveryv1.LabelServiceName] == key.Name {
			all = append(all, s)
		}
	}
	return all
}

func (r *reference) sync(key cluster.Key) {
	s := r.services[key]
	if s == nil || len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		for _, slice := range r.of(key) { // as no slice is left behind
			delete(r.slices, slice.Name)
		}
		for _, t := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			r.topology.RemoveHints(key.String(), t)
		}
		return
	}
	var pods []*corev1.Pod
	for _, p := range r.pods {
		if selects(s, p) {
			pods = append(pods, p.DeepCopy())
		}
	}
	// An error is a Pod that was left out as its Node is not there.
	_ = r.library.Reconcile(klog.Logger{}, s.DeepCopy(), pods, r.of(key), time.Time{})
}

func (r *reference) DiscoveryV1() typeddiscovery.DiscoveryV1Interface { return r }

func (r *reference) EndpointSlices(string) typeddiscovery.EndpointSliceInterface { return r }

func (r *reference) Create(_ context.Context, s *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	r.named++
	s = s.DeepCopy()
	s.Name = fmt.Sprintf("%s%d", s.GenerateName, r.named)
	r.slices[s.Name] = s
	return s, nil
}

func (r *reference) Update(_ context.Context, s *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	s = s.DeepCopy()
	r.slices[s.Name] = s
	return s, nil
}

func (r *reference) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	delete(r.slices, name)
	return nil
}

type nodeLister struct{ *reference }

func (l nodeLister) Get(name string) (*corev1.Node, error) {
	if n := l.nodes[name]; n != nil {
		return n, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func (l nodeLister) List(labels.Selector) ([]*corev1.Node, error) { panic("not asked for") }
