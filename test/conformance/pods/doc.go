// Package pods runs the Pods of an API server as processes: it does for one node what a scheduler, a kubelet and a
// container runtime do, as far as the Pods of conformance tests need it.
//
//	Pod without a node ─► binding ─► volumes: Secrets, ConfigMaps
//	                                 network namespace with an address and a link to the caller's
//	                                 process with a root of its own ─► status: Running, Ready once it listens
//	API server ── HTTPS ──► log of the process
//
// A Pod has one container. There are no probes, no hooks, no limits, and no end by itself: what ends is started again.
package pods
