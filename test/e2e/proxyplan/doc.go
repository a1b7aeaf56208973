// Package proxyplan holds no code. Its tests compare internal/proxy/plan with kube-proxy's own
// code: which endpoints a Service has on a node, and for whom; and they replay the cases of
// kube-proxy's tests, see docs/proxy-evidence.md. They need no cluster.
package proxyplan
