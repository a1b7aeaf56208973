// Package cri is a container runtime for tests. A real kubelet runs Pods with it, by the
// Container Runtime Interface (k8s.io/cri-api, runtime.v1), where no container engine and no
// registry of images is at hand.
//
//	kubelet ── gRPC ──► Server ─┬─► sandbox: a network namespace with a link to the node's
//	                            ├─► CNI plugins: ADD, DEL, STATUS
//	                            ├─► container: a process with namespaces and a root of its own
//	                            └─► streaming server: exec, port forwarding
//
// The root of a container has the image's program and, read-only, /usr of this machine. There
// are no cgroups, no limits, no seccomp filters and no security modules. Users other than root
// have no capabilities, root has all. There are no host ports, terminals and attached streams.
//
// Containers begin as the program that calls Server.Run, so that one must call Main first.
package cri
