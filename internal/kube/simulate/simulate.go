// Package simulate simulates the control plane of a cluster that exists only as
// manifests: it adds to the model what Kubernetes' controllers would create. It does so
// in the transaction that declares the objects, one step after the other:
//
//	workloads ─► Pods ─► addresses of Pods ─► Nodes (this package)
//	Services ─► cluster IPs and node ports (package alloc)
//	Services, Pods ─► EndpointSlices (package endpointslices)
//
// Each step computes only what the transaction's changes affect. Pods are computed by
// Namespace.
//
// Nothing runs. Pods of workloads, and Pods whose address is simulated, are marked as
// simulated and are ready. They run on the declared Nodes, or on a simulated one if
// none is declared.
package simulate

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/simulate/alloc"
)

// Config configures a ControlPlane.
type Config struct {
	// ServiceRanges and PodRanges are the ranges that addresses are assigned from:
	// one each, or two of different families.
	ServiceRanges, PodRanges []netip.Prefix
	// NodePorts are the ports that are assigned to Services.
	NodePorts alloc.Ports
	// MaxEndpoints is the greatest number of endpoints in a slice, 1 to 1000.
	MaxEndpoints int
	Log          *slog.Logger
}

// ControlPlane adds to the model what Kubernetes' controllers would create for the
// declared objects. It implements manifest.ControlPlane.
type ControlPlane struct {
	services  *alloc.Allocator
	slices    *endpointslices.Compiler
	apiServer netip.Addr // the address of the API server's Service
	addresses *addresses
	// pods and nodes are the simulated objects of the model, and the declared ones that
	// were completed.
	pods      map[cluster.Key]owned[cluster.Pod]
	nodes     map[string]owned[cluster.Node]
	refused   []cluster.Refusal // workloads and Pods
	exhausted bool              // some Pods have no address
	started   bool
}

// New returns a ControlPlane, or an error if the ranges are invalid.
func New(cfg Config) (*ControlPlane, error) {
	services, err := alloc.New(alloc.Config{Ranges: cfg.ServiceRanges, NodePorts: cfg.NodePorts})
	if err != nil {
		return nil, err
	}
	if err := checkPodRanges(cfg); err != nil {
		return nil, err
	}
	c := &ControlPlane{
		services:  services,
		slices:    endpointslices.New(endpointslices.Config{MaxEndpoints: cfg.MaxEndpoints, Log: cfg.Log}),
		apiServer: cfg.ServiceRanges[0].Masked().Addr().Next(),
		addresses: newAddresses(cfg.PodRanges),
		pods:      make(map[cluster.Key]owned[cluster.Pod]),
	}
	// Reserve the address of the API server's Service before any other Service can get it.
	first := cluster.NewStore()
	first.Update(c.putAPIServer)
	first.View(c.services.Recall)
	return c, nil
}

// checkPodRanges returns an error if Pods cannot get addresses from the ranges.
func checkPodRanges(cfg Config) error {
	ranges := cfg.PodRanges
	if len(ranges) == 0 || len(ranges) > 2 || len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return fmt.Errorf("ranges of Pods %v: there must be one, or two of different families", ranges)
	}
	for _, r := range ranges {
		for _, other := range cfg.ServiceRanges {
			if r.Overlaps(other) {
				return fmt.Errorf("the range of Pods %s overlaps %s", r, other)
			}
		}
	}
	return nil
}

// Recall reserves the addresses of a snapshot's objects, so that these retain them. It
// must be called before the first Complete.
func (c *ControlPlane) Recall(v *cluster.View) {
	c.services.Recall(v)
	for p := range v.Pods() {
		if p.Simulated && (p.Spec == nil || !p.Spec.HostNetwork) {
			c.addresses.reserve(p.Key, p.IPs)
		}
	}
}

// Complete adds to a transaction what follows from its changes. It returns the refusals
// in effect, see manifest.ControlPlane.
func (c *ControlPlane) Complete(tx *cluster.Tx) []cluster.Refusal {
	c.putAPIServer(tx)
	if s := c.scope(tx.Changed()); s == nil || len(s) > 0 {
		c.started = true
		c.dropReplaced(tx)
		c.putPods(tx, s)
		c.putNodes(tx)
	}
	refused := slices.Concat(c.refused, c.services.Complete(tx))
	c.slices.Complete(tx)
	return refused
}

// Slices returns the EndpointSlices generated for a Service, sorted by name.
func (c *ControlPlane) Slices(service cluster.Key) []*discoveryv1.EndpointSlice {
	return c.slices.Slices(service)
}

// apiServer is the key of the API server's Service, which every cluster has. Its address
// is the first of the range.
var apiServer = cluster.Key{Namespace: "default", Name: "kubernetes"}

func (c *ControlPlane) putAPIServer(tx *cluster.Tx) {
	if tx.Namespace(apiServer.Namespace) == nil {
		tx.Put(&cluster.Namespace{Name: apiServer.Namespace})
	}
	if tx.Service(apiServer) != nil {
		return
	}
	tx.Put(&cluster.Service{
		Key:        apiServer,
		ClusterIPs: []netip.Addr{c.apiServer},
		Ports:      []cluster.Port{{Name: "https", Protocol: cluster.TCP, Number: 443}},
		Targets:    []string{"6443"},
		Spec: &cluster.ServiceSpec{
			Type:         cluster.ClusterIP,
			Labels:       map[string]string{"component": "apiserver", "provider": "kubernetes"},
			FamilyPolicy: cluster.SingleStack,
			Families:     []cluster.AddressType{cluster.FamilyOf(c.apiServer)},
		},
	})
}
