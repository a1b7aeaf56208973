package settings

import "portolan.dev/portolan/internal/config/key"

// ControllerKeys are the keys of the section controller, in the order of the file.
var ControllerKeys = key.Table{
	{Path: "controller",
		Description: "The EndpointSlice controller, `portolan controller slices`. See controller.md."},
	{Path: "controller.maxEndpointsPerSlice", Min: "1", Max: "1000", Restart: []key.Condition{key.Always},
		Description: "The largest number of endpoints in one EndpointSlice (`--max-endpoints-per-slice`)."},
	{Path: "controller.concurrentSyncs", Min: "1", Max: "1000", Restart: []key.Condition{key.Always},
		Description: "Services that are worked on at once."},
	{Path: "controller.leaderElection",
		Description: "One of several processes works: the one that holds the Lease. Without it, run one process."},
	{Path: "controller.leaderElection.enabled", Restart: []key.Condition{key.Always},
		Description: "Turns the election on."},
	{Path: "controller.leaderElection.namespace", Restart: []key.Condition{key.Always},
		Description: "The namespace of the Lease."},
	{Path: "controller.leaderElection.name", Restart: []key.Condition{key.Always},
		Description: "The name of the Lease."},
	{Path: "controller.leaderElection.leaseDuration", Restart: []key.Condition{key.Always},
		Description: "How long a Lease is held after a renewal; 1s or more."},
	{Path: "controller.leaderElection.renewDeadline", Restart: []key.Condition{key.Always},
		Description: "A leader that could not renew the Lease for this time exits; less than the lease duration."},
	{Path: "controller.leaderElection.retryPeriod", Restart: []key.Condition{key.Always},
		Description: "The time between two attempts to get or renew the Lease."},
}
