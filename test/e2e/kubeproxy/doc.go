// Package kubeproxy compares what the service proxy has of kube-proxy with kube-proxy's own
// packages: its configuration file and its flags, and its metrics.
package kubeproxy
