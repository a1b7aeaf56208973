package healthcheck

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/budget"
)

// ListenError says why the health check of a Service is not served, at one address at least.
type ListenError struct {
	Service cluster.Key
	Port    uint16
	// Addr is the address at which listening failed, with Err.
	Addr netip.Addr
	Err  error
	// Other is the Service that has the port, instead of Err.
	Other cluster.Key
}

// Error says which Service, which port, why, and what to do.
func (e *ListenError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("health check of service %s: port %d is the healthCheckNodePort of service %s; "+
			"give one of them another", e.Service, e.Port, e.Other)
	}
	return fmt.Sprintf("health check of service %s: listen on %s: %s; "+
		"it is tried again until another process lets go of the port", e.Service, netip.AddrPortFrom(e.Addr, e.Port), e.Err)
}

// Unwrap returns the error of listening; nil if another Service has the port.
func (e *ListenError) Unwrap() error { return e.Err }

// server answers load balancers on the healthCheckNodePort of a Service, at each address of the
// node. Run of Servers owns it, but for endpoints.
type server struct {
	service cluster.Key
	port    uint16
	healthy func() bool
	// endpoints are the numbers of those ready on the node, by family.
	endpoints atomic.Pointer[map[cluster.AddressType]int]

	http        *http.Server
	connections *budget.Account
	serving     sync.WaitGroup // one for each listener
	listeners   map[netip.Addr]net.Listener
	// failed are the addresses at which listening failed, until it is tried again.
	failed map[netip.Addr]error
	// problem is what Report was told; nil while all is well.
	problem *ListenError
}

// body is the body of a response, octet for octet kube-proxy's. Names of Kubernetes need no
// escapes.
const body = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

// ServeHTTP responds to any request: with 200 if connections to the node reach an endpoint
// there, and with 503 otherwise.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoints, healthy := (*s.endpoints.Load())[familyOf(r)], s.healthy()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(endpoints))
	if endpoints == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, body, s.service.Namespace, s.service.Name, endpoints, healthy)
}

// familyOf returns the family of the address at which a request arrived.
func familyOf(r *http.Request) cluster.AddressType {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if at == nil {
		return cluster.IPv4
	}
	return cluster.FamilyOf(at.AddrPort().Addr().Unmap())
}

// current reports whether the server listens at the addresses, and at no others.
func (s *server) current(addrs []netip.Addr) bool {
	missing := func(a netip.Addr) bool { return s.listeners[a] == nil }
	return len(s.listeners) == len(addrs) && len(s.failed) == 0 && !slices.ContainsFunc(addrs, missing)
}

// closeOthers closes the listeners at addresses that are not wanted any more.
func (s *server) closeOthers(wanted func(netip.Addr) bool) {
	for a, l := range s.listeners {
		if !wanted(a) {
			l.Close()
			delete(s.listeners, a)
		}
	}
	for a := range s.failed {
		if !wanted(a) {
			delete(s.failed, a)
		}
	}
}
