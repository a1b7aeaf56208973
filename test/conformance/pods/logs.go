//go:build linux

package pods

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// log is the file of what a Pod's container prints.
func (n *Node) log(namespace, pod string) string {
	return filepath.Join(n.config.Dir, namespace+"."+pod+".log")
}

// serveLogs serves logs to the API server, which has no authority to verify the certificate with. Options are ignored:
// a reader gets all that was logged ever.
func (n *Node) serveLogs() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, n.log(r.PathValue("namespace"), r.PathValue("pod")))
	})
	return httptest.NewTLSServer(mux)
}

// status tells the API server where logs are served.
func status(logs net.Addr) (s corev1.NodeStatus, err error) {
	host, text, err := net.SplitHostPort(logs.String())
	if err != nil {
		return s, err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return s, err
	}
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	s.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	return s, nil
}
