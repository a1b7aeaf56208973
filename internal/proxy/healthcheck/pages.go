package healthcheck

import (
	"encoding/json"
	"net/http"

	"portolan.dev/portolan/internal/cluster"
)

// Probes are the pages by which load balancers and kubelets decide about the node and the
// process: kube-proxy has them on port 10256.
type Probes struct {
	Health *Health
	// Node returns the proxy's Node, nil if it does not exist.
	Node func() *cluster.Node
	// Observe is called for each response, for metrics; nil does nothing.
	Observe func(path string, status int)
}

// Handler serves /healthz and /livez. Both respond with a Status. The status code is 503 if the
// proxy is not healthy, and for /healthz also if the node is not eligible: load balancers then
// send it no new connections.
func (p *Probes) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := p.Health.Status()
		eligible := isEligible(p.Node())
		s.NodeEligible = &eligible
		p.respond(w, "/healthz", s)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { p.respond(w, "/livez", p.Health.Status()) })
	return mux
}

// isEligible reports whether a node may get new connections.
func isEligible(n *cluster.Node) bool { return n != nil && !n.Leaving }

// respond sends a status with the status code that follows from it.
func (p *Probes) respond(w http.ResponseWriter, path string, s Status) {
	code := http.StatusServiceUnavailable
	if s.Healthy && (s.NodeEligible == nil || *s.NodeEligible) {
		code = http.StatusOK
		s.LastUpdated = s.CurrentTime
	}
	if p.Observe != nil {
		p.Observe(path, code)
	}
	body, err := json.Marshal(s)
	if err != nil { // a clock outside of years that JSON has
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}
