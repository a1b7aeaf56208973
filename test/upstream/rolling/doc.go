// Package rolling replaces the Pods of a Deployment by a rolling update while clients connect to
// its Services, on a cluster of package cluster, and counts the connections that fail.
//
//	Pods "client" on each node ── Service "internal", cluster IP ───────────────┐
//	balancer in this process ──── Service "external", node port, policy Local ──┴── Pods "server"
//
// The balancer connects to the nodes whose health checks succeed, as cloud providers' do.
package rolling
