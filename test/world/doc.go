// Package world makes a cluster out of a directory of manifests, in network namespaces of one machine, and sends what
// clients send: lookups, connections, packets and requests.
//
//	outside ───────── router ─┬─ node n1 ─┬─ Pod    each node runs portolan node with the parts proxy and policy
//	 clients, servers,        │           └─ Pod    Pods of the cluster DNS run portolan serve, and those of the
//	 the upstream DNS         └─ node n2 ─── Pod    gateway portolan gateway; the others have small servers
//
// Nodes are those of the manifests, with their InternalIPs. Pods with an address and a node are namespaces, with a
// resolv.conf as the kubelet makes it. All programs are the real ones and read the manifests; who judges them does it
// by what comes back. What is sent here knows nothing of the model that explanations are made of.
package world
