// Package healthcheck tells load balancers, kubelets and operators whether a node's service
// proxy works, at the ports and in the words of kube-proxy, so that what asks kube-proxy can ask
// this one (k8s.io/kubernetes v1.36.3, pkg/proxy/healthcheck and cmd/kube-proxy/app; Kubernetes,
// "Virtual IPs and Service Proxies"; KEP-3458, the load balancers' use of /healthz).
//
//	health.go   changes that wait and changes made ──► Health: is the kernel current?
//	pages.go    Health, Node ──► /healthz and /livez (port 10256)
//	servers.go  plan.HealthCheck ──► one server for each healthCheckNodePort
//	server.go   Health, number of endpoints on the node ──► its responses
package healthcheck

import (
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// Health is whether the kernel has what the cluster wants. It is healthy unless a change of a
// family has been waiting for too long, also the first one, which kube-proxy does not count. Its
// methods are safe for concurrent use.
type Health struct {
	limit time.Duration
	clock func() time.Time

	mu      sync.Mutex
	updated map[cluster.AddressType]time.Time // the last time
	queued  map[cluster.AddressType]time.Time // since when a change has been waiting
}

// NewHealth returns a Health. A change may wait for less than limit: kube-proxy gives it two
// sync periods, so a minute by default. clock is time.Now outside of tests.
func NewHealth(limit time.Duration, clock func() time.Time) *Health {
	return &Health{
		limit: limit, clock: clock,
		updated: make(map[cluster.AddressType]time.Time), queued: make(map[cluster.AddressType]time.Time),
	}
}

// Queued says that a change of the family waits to be made in the kernel.
func (h *Health) Queued(family cluster.AddressType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waiting := h.queued[family]; !waiting {
		h.queued[family] = h.clock()
	}
}

// Updated says that the kernel has all changes of the family that were queued.
func (h *Health) Updated(family cluster.AddressType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.queued, family)
	h.updated[family] = h.clock()
}

// Healthy reports whether no change of any family has been waiting for too long.
func (h *Health) Healthy() bool { return h.Status().Healthy }

// Status is the body of /healthz and /livez.
type Status struct {
	// LastUpdated is when the kernel was last updated in a family, and the current time while
	// healthy: clients read it as the last time that everything was well.
	LastUpdated time.Time `json:"lastUpdated"`
	CurrentTime time.Time `json:"currentTime"`
	// NodeEligible is whether the node may get new connections; nil for /livez.
	NodeEligible *bool `json:"nodeEligible,omitempty"`
	// Healthy is whether each family is.
	Healthy bool `json:"healthy"`
	// Families are those that have been updated.
	Families map[cluster.AddressType]FamilyStatus `json:"status,omitempty"`
}

// FamilyStatus is the Status of one family.
type FamilyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// Status returns the present status, without LastUpdated's exception and NodeEligible.
func (h *Health) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{CurrentTime: h.clock(), Healthy: true, Families: make(map[cluster.AddressType]FamilyStatus)}
	for _, queued := range h.queued {
		s.Healthy = s.Healthy && !h.late(queued, s.CurrentTime)
	}
	for family, updated := range h.updated {
		if updated.After(s.LastUpdated) {
			s.LastUpdated = updated
		}
		queued, waiting := h.queued[family]
		s.Families[family] = FamilyStatus{LastUpdated: updated, Healthy: !waiting || !h.late(queued, s.CurrentTime)}
	}
	return s
}

// late reports whether a change that was queued at a time has been waiting for too long.
func (h *Health) late(queued, now time.Time) bool { return now.Sub(queued) >= h.limit }
