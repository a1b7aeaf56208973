package settings

import "portolan.dev/portolan/internal/config/key"

// Keys are the keys of the sections simulate, kubernetes and snapshot, in the order of
// the file.
var Keys = key.Table{
	{Path: "simulate",
		Description: "Completes manifests as a control plane does (`--simulate`): workloads get Pods, Pods and " +
			"Services get addresses, Services get EndpointSlices and node ports. See simulate.md."},
	{Path: "simulate.enabled", Restart: []key.Condition{key.Always},
		Description: "Turns the simulation on; it needs `manifests`."},
	{Path: "simulate.nodePorts", Restart: []key.Condition{key.Always},
		Description: "The first and last node port, as in `30000-32767`."},
	{Path: "simulate.maxEndpointsPerSlice", Min: "1", Max: "1000", Restart: []key.Condition{key.Always},
		Description: "The largest number of endpoints in one EndpointSlice."},
	{Path: "kubernetes",
		Description: "How the Kubernetes API is read."},
	{Path: "kubernetes.kubeconfig", Restart: []key.Condition{key.Always},
		Description: "A kubeconfig file (`--kubeconfig`). Empty uses the Pod's service account; the variable " +
			"KUBECONFIG is ignored."},
	{Path: "kubernetes.namespaces", Restart: []key.Condition{key.Always},
		Description: "The namespaces to read; all when empty."},
	{Path: "kubernetes.serviceSelector", Restart: []key.Condition{key.Always},
		Description: "A label selector for Services; other Services do not exist for Portolan."},
	{Path: "kubernetes.qps", Min: "1", Restart: []key.Condition{key.Always},
		Description: "Requests per second to the API server, on average."},
	{Path: "kubernetes.burst", Min: "1", Restart: []key.Condition{key.Always},
		Description: "Requests to the API server at once."},
	{Path: "kubernetes.watchList", Restart: []key.Condition{key.Always},
		Description: "Receives lists as watches (WatchList) where the server supports it. It saves memory in API " +
			"servers before Kubernetes 1.33."},
	{Path: "kubernetes.silence", Min: "1s", Restart: []key.Condition{key.Always},
		Description: "A watch without any event for this time is closed and started again."},
	{Path: "snapshot",
		Description: "A copy of the cluster on disk, for a start without the API server."},
	{Path: "snapshot.file", Restart: []key.Condition{key.Always},
		Description: "The file (`--snapshot`); empty keeps none."},
	{Path: "snapshot.settle", Min: "0s", Restart: []key.Condition{key.Always},
		Description: "From the moment the API server answers, names missing from the snapshot are not denied for this time."},
}
