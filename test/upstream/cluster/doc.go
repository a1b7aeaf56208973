// Package cluster runs a cluster of several nodes on one machine, on which end-to-end tests of
// Kubernetes can run: a real API server with its controllers and its scheduler, real kubelets, and
// a service proxy on each node, which may enforce policies. Portolan serves its DNS. Or else Portolan's own manifests
// make all of the network, in Pods: then there are no DNS server and no proxies as below.
//
//	network namespace of the caller                        of each node
//	  API server, controllers, scheduler, DNS server         kubelet, proxy, Pods
//	  bridge "cluster" 10.0.0.254, fd00:10::254  ── veth ──  10.0.0.N, fd00:10::N
//
// The caller must be in a network namespace of its own (see Isolate).
package cluster
