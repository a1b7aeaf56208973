package app

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Pages returns the pages of kube-proxy's metrics address that the admin server lacks:
// /proxyMode, by which tests and tools find out the mode, and /configz, which every component
// of Kubernetes has (k8s.io/kubernetes, cmd/kube-proxy/app).
func (p *Proxy) Pages() map[string]http.Handler {
	return map[string]http.Handler{
		"/proxyMode": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			fmt.Fprint(w, "nftables")
		}),
		"/configz": http.HandlerFunc(p.writeSettings),
	}
}

// writeSettings responds with the settings in force that the proxy has, by the name of the program.
func (p *Proxy) writeSettings(w http.ResponseWriter, _ *http.Request) {
	sections, err := p.cfg.Settings.Sections("kubernetes", "admin", "log", "proxy")
	var body []byte
	if err == nil {
		body, err = json.Marshal(map[string]any{"portolan.dev": sections})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // the client may be gone
}
