// Package endpointslices makes EndpointSlices of Services' selectors and Pods,
// as Kubernetes' own controller does and by the library that it does it by,
// k8s.io/endpointslice.
//
// It follows the pages "EndpointSlices" and "Topology Aware Routing" of the
// Kubernetes documentation and, for what they leave open, the endpointslice
// controller of kube-controller-manager 1.36.
//
// An Index knows which Pods a Service selects, and which Services a change
// touches. A Reconciler brings the slices of one Service up to date, wherever
// they are written. A Compiler does both for a model in memory.
package endpointslices

import (
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"portolan.dev/portolan/internal/cluster"
)

// ManagedBy is what slices of selectors are labelled with under
// endpointslice.kubernetes.io/managed-by (EndpointSlices, "Management").
const ManagedBy = "endpointslice-controller.k8s.io"

// How many endpoints a slice holds at most: by default, and how that may be set
// (EndpointSlices, "EndpointSlice API").
const (
	DefaultMaxEndpoints = 100
	MaxMaxEndpoints     = 1000
)

// ReconcilerConfig is what a Reconciler is made of.
type ReconcilerConfig struct {
	// Client writes slices; only DiscoveryV1().EndpointSlices is asked of it, to
	// create, update and delete.
	Client kubernetes.Interface
	// Nodes may be shared by Reconcilers.
	Nodes *Nodes
	// MaxEndpoints is how many endpoints a slice holds at most; 0 is
	// DefaultMaxEndpoints.
	MaxEndpoints int
	// Tracker is told what was written. It may be shared; nil is one that nobody
	// asks.
	Tracker *endpointsliceutil.EndpointSliceTracker
	// Events is told why hints of the topology annotation come and go.
	Events record.EventRecorder
}

// Reconciler brings the slices of one Service after the other up to date. It is
// not for use by several goroutines at once: each makes its own.
type Reconciler struct {
	library *endpointslice.Reconciler
	tracker *endpointsliceutil.EndpointSliceTracker
	nodes   *Nodes
	scratch scratch
}

// NewReconciler makes a Reconciler.
func NewReconciler(cfg ReconcilerConfig) *Reconciler {
	if cfg.MaxEndpoints == 0 {
		cfg.MaxEndpoints = DefaultMaxEndpoints
	}
	if cfg.Tracker == nil {
		cfg.Tracker = endpointsliceutil.NewEndpointSliceTracker()
	}
	return &Reconciler{
		tracker: cfg.Tracker,
		nodes:   cfg.Nodes,
		library: endpointslice.NewReconciler(cfg.Client, lister{cfg.Nodes}, int32(cfg.MaxEndpoints), cfg.Tracker,
			cfg.Nodes.topology, cfg.Events, ManagedBy, endpointslice.WithPreferSameTrafficDistributionEnabled(true)),
	}
}

// Request is a Service whose slices are to be brought up to date.
type Request struct {
	// Service is one that HasSlices.
	Service *cluster.Service
	// Pods are those that it selects.
	Pods []*cluster.Pod
	// Existing are its slices so far that are labelled ManagedBy. They are not
	// changed; what is written shares memory with them.
	Existing []*discoveryv1.EndpointSlice
	// Trigger is when the change happened that this is for, if that is known.
	Trigger time.Time
}

// Reconcile writes what has to change. It fails when a write does, and when a
// Pod was left out because its Node is not known; the rest is done then.
//
// What is given to the client is good until it returns, as some of it is used
// again: it has to copy what it keeps.
func (r *Reconciler) Reconcile(req Request) error {
	pods := r.scratch.pods(req.Pods)
	if err := r.library.Reconcile(klog.Logger{}, apiService(req.Service), pods, req.Existing, req.Trigger); err != nil {
		return fmt.Errorf("slices of service %s: %w", req.Service.Key, err)
	}
	return nil
}

// Forget drops what is remembered of a Service that went.
func (r *Reconciler) Forget(service cluster.Key) {
	r.nodes.forget(service)
	r.forgetFigures(service)
}

// forgetFigures drops what is counted of a Service, and known of its slices.
func (r *Reconciler) forgetFigures(service cluster.Key) {
	r.library.DeleteService(service.Namespace, service.Name)
	r.tracker.DeleteService(service.Namespace, service.Name)
}

// HasSlices tells whether a Service's slices are made of its selector: it has
// one, and is not of type ExternalName.
func HasSlices(s *cluster.Service) bool {
	return s != nil && len(s.Selector) > 0 && s.ExternalName == "" && (s.Spec == nil || s.Spec.Type != cluster.ExternalName)
}

// allotted tells whether the Service's endpoints are allotted to zones (Topology
// Aware Routing, "Enabling Topology Aware Routing").
func allotted(s *cluster.Service) bool {
	return s.Spec != nil && (s.Spec.TopologyMode == "Auto" || s.Spec.TopologyMode == "auto")
}
