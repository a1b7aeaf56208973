// Package proxyplan holds no code. Its tests compare internal/proxy/plan with kube-proxy's own
// code: which endpoints a Service has on a node, and for whom. They need no cluster.
package proxyplan
