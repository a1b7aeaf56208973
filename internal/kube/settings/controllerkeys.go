package settings

import "portolan.dev/portolan/internal/config/key"

// ControllerKeys are the keys of the section controller, in the order of the file.
var ControllerKeys = key.Table{
	{Path: "controller",
		Description: "The controllers, `portolan controller`. See controller.md."},
	{Path: "controller.maxEndpointsPerSlice", Min: "1", Max: "1000", Restart: []key.Condition{key.Always},
		Description: "The largest number of endpoints in one EndpointSlice (`--max-endpoints-per-slice`)."},
	{Path: "controller.concurrentSyncs", Min: "1", Max: "1000", Restart: []key.Condition{key.Always},
		Description: "Services, or Nodes, that are worked on at once."},
	{Path: "controller.leaderElection",
		Description: "One of several processes works: the one that holds the Lease. Without it, run one process."},
	{Path: "controller.leaderElection.enabled", Restart: []key.Condition{key.Always},
		Description: "Turns the election on."},
	{Path: "controller.leaderElection.namespace", Restart: []key.Condition{key.Always},
		Description: "The namespace of the Lease."},
	{Path: "controller.leaderElection.name", Restart: []key.Condition{key.Always},
		Description: "The name of the Lease. Empty is that of the controller: `portolan-slices`, `portolan-nodes`."},
	{Path: "controller.leaderElection.leaseDuration", Restart: []key.Condition{key.Always},
		Description: "How long a Lease is held after a renewal; 1s or more."},
	{Path: "controller.leaderElection.renewDeadline", Restart: []key.Condition{key.Always},
		Description: "A leader that could not renew the Lease for this time exits; less than the lease duration."},
	{Path: "controller.leaderElection.retryPeriod", Restart: []key.Condition{key.Always},
		Description: "The time between two attempts to get or renew the Lease."},
	{Path: "controller.nodes",
		Description: "The ranges of Pod addresses of Nodes, for `portolan controller nodes`."},
	{Path: "controller.nodes.clusterCIDRs", Restart: []key.Condition{key.Always},
		Description: "The range of all Pod addresses, or one of each family; the first is that of `spec.podCIDR` " +
			"(`--cluster-cidr`)."},
	{Path: "controller.nodes.maskIPv4", Min: "1", Max: "32", Restart: []key.Condition{key.Always},
		Description: "The prefix length of a Node's IPv4 range, at most 20 more than that of the cluster."},
	{Path: "controller.nodes.maskIPv6", Min: "1", Max: "128", Restart: []key.Condition{key.Always},
		Description: "The prefix length of a Node's IPv6 range, at most 16 more than that of the cluster."},
}
