// Package kubeproxy holds no code. Its tests compare what the service proxy has of kube-proxy with
// kube-proxy's own packages: the configuration file, flags and metrics; and they have an API
// server take its Event.
package kubeproxy
