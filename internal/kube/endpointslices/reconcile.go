// Package endpointslices generates EndpointSlices from the selectors of Services and
// from Pods, with the library of Kubernetes' own controller, k8s.io/endpointslice.
//
// It implements the pages "EndpointSlices" and "Topology Aware Routing" of the
// Kubernetes documentation and, where they leave something open, follows the
// endpointslice controller of kube-controller-manager 1.36.
//
//	changes ─► Index ─► affected Services ─► Reconciler ─► k8s.io/endpointslice
//	                                                           │ writes
//	                          Controller: the API ◄────────────┤
//	                          Compiler: the model in memory ◄──┘
//
// An Index knows which Pods a Service selects and which Services a change affects.
// A Reconciler updates the slices of one Service through a client. A Compiler does
// both for a model in memory, a Controller for the API.
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

// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on slices
// generated from selectors (EndpointSlices, "Management").
const ManagedBy = "endpointslice-controller.k8s.io"

// Limits of the number of endpoints in a slice: the default, and the greatest that
// can be configured (EndpointSlices, "EndpointSlice API").
const (
	DefaultMaxEndpoints = 100
	MaxMaxEndpoints     = 1000
)

// ReconcilerConfig configures a Reconciler.
type ReconcilerConfig struct {
	// Client writes slices. The Reconciler uses only the methods Create, Update and
	// Delete of DiscoveryV1().EndpointSlices.
	Client kubernetes.Interface
	// Nodes may be shared by several Reconcilers.
	Nodes *Nodes
	// MaxEndpoints is the greatest number of endpoints in a slice; 0 is
	// DefaultMaxEndpoints.
	MaxEndpoints int
	// Tracker records what was written. It may be shared; nil gives the Reconciler
	// its own.
	Tracker *endpointsliceutil.EndpointSliceTracker
	// Events receives the reasons why hints of the topology annotation are set or
	// removed.
	Events record.EventRecorder
}

// Reconciler updates the slices of one Service after the other. It is not for
// concurrent use.
type Reconciler struct {
	library *endpointslice.Reconciler
	tracker *endpointsliceutil.EndpointSliceTracker
	nodes   *Nodes
	scratch scratch
}

// NewReconciler returns a Reconciler.
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

// Request asks a Reconciler to update the slices of a Service.
type Request struct {
	// Service is one for which HasSlices is true.
	Service *cluster.Service
	// Pods are those that it selects.
	Pods []*cluster.Pod
	// Existing are its present slices labeled ManagedBy. They are not changed;
	// slices that are written share memory with them.
	Existing []*discoveryv1.EndpointSlice
	// Trigger is the time of the change that led to the request, zero if unknown.
	Trigger time.Time
}

// Reconcile writes the slices that have to change. It returns an error if a write
// fails, and, after everything else is done, if it omitted a Pod because its Node is
// unknown.
//
// Objects passed to the client are valid until the call to the client returns,
// because the Reconciler reuses parts of them: the client has to copy what it keeps.
func (r *Reconciler) Reconcile(req Request) error {
	pods := r.scratch.pods(req.Pods)
	if err := r.library.Reconcile(klog.Logger{}, apiService(req.Service), pods, req.Existing, req.Trigger); err != nil {
		return fmt.Errorf("slices of service %s: %w", req.Service.Key, err)
	}
	return nil
}

// forgetMetrics drops the library's metrics and tracking data about a Service.
func (r *Reconciler) forgetMetrics(service cluster.Key) {
	r.library.DeleteService(service.Namespace, service.Name)
	r.tracker.DeleteService(service.Namespace, service.Name)
}

// HasSlices reports whether a Service gets slices generated from its selector: it
// has one and is not of type ExternalName.
func HasSlices(s *cluster.Service) bool {
	return s != nil && len(s.Selector) > 0 && s.ExternalName == "" &&
		(s.Spec == nil || s.Spec.Type != cluster.ExternalName)
}

// allocatesZones reports whether the Service's endpoints are allocated to zones
// (Topology Aware Routing, "Enabling Topology Aware Routing").
func allocatesZones(s *cluster.Service) bool {
	return s.Spec != nil && (s.Spec.TopologyMode == "Auto" || s.Spec.TopologyMode == "auto")
}
