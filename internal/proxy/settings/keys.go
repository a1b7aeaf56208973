package settings

import "portolan.dev/portolan/internal/config/key"

// Keys are the keys of the section proxy, in the order of the file.
var Keys = key.Table{
	{Path: "proxy",
		Description: "The service proxy of a node, `portolan proxy`. See proxy.md."},
	{Path: "proxy.nodeName", Restart: []key.Condition{key.Always},
		Description: "The name of the Node (`--node-name`); when empty the environment variable `NODE_NAME`, " +
			"or else the host name."},
	{Path: "proxy.detectLocal",
		Description: "How packets from Pods on the node are recognized. Connections from other sources to a cluster IP " +
			"are masqueraded, so that replies return through the node."},
	{Path: "proxy.detectLocal.mode", Values: []string{"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"},
		Restart: []key.Condition{key.Always},
		Description: "As `detectLocalMode` of kube-proxy: by the Pods' ranges in `clusterCIDRs`, by the Node's " +
			"`spec.podCIDRs`, or by the interface that packets arrive at."},
	{Path: "proxy.detectLocal.clusterCIDRs", Restart: []key.Condition{key.Always},
		Description: "The Pods' ranges, one of each family (`--cluster-cidr`). Without one, nothing is masqueraded for " +
			"its source."},
	{Path: "proxy.detectLocal.interface", Restart: []key.Condition{key.Always},
		Description: "The name of the bridge, or the prefix of the names of the Pods' interfaces."},
	{Path: "proxy.masqueradeAll", Restart: []key.Condition{key.Always},
		Description: "Masquerades all connections to cluster IPs."},
	{Path: "proxy.masqueradeBit", Min: "0", Max: "31", Restart: []key.Condition{key.Always},
		Description: "The bit of the packet mark of packets that are to be masqueraded."},
	{Path: "proxy.nodePortAddresses", Restart: []key.Condition{key.Always},
		Description: "The addresses of the node at which node ports are reached: `primary` for its InternalIPs, " +
			"or ranges that local addresses are in."},
	{Path: "proxy.slowStart", Min: "0s", Max: "1h", Restart: []key.Condition{key.Always},
		Description: "For how long an endpoint that became ready gets fewer connections than the others, of Services " +
			"without the annotation `portolan.dev/slow-start`. See proxy.md."},
	{Path: "proxy.endpointChoice", Values: []string{"random", "client-hash", "connection-hash"},
		Restart: []key.Condition{key.Always},
		Description: "How an endpoint is chosen for a new connection, for Services without the annotation " +
			"`portolan.dev/endpoint-choice`: at random, by a hash of the client's address, or by one of its address and port. " +
			"See proxy.md."},
	{Path: "proxy.table", Restart: []key.Condition{key.Always},
		Description: "The name of the nftables tables."},
	{Path: "proxy.counters", Restart: []key.Condition{key.Always},
		Description: "Counts the connections to each port of a Service, for the metric " +
			"`portolan_proxy_service_connections_total`."},
	{Path: "proxy.replaceKubeProxy", Restart: []key.Condition{key.Always},
		Description: "Removes the rules of kube-proxy when those of the proxy are in the kernel (`--replace-kube-proxy`). " +
			"Stop kube-proxy before or right after: rules that it adds again stay, with a warning."},
	{Path: "proxy.healthz", Restart: []key.Condition{key.Always},
		Description: "Address and port of `/healthz` and `/livez`, for load balancers and kubelets; empty turns them off."},
	{Path: "proxy.healthLimit", Min: "1s", Restart: []key.Condition{key.Always},
		Description: "The proxy is not healthy if the kernel lacks a change for longer."},
	{Path: "proxy.conntrack",
		Description: "Connection tracking. Values are those of kube-proxy; what is 0 stays as it is in the kernel."},
	{Path: "proxy.conntrack.maxPerCore", Min: "0", Restart: []key.Condition{key.Always},
		Description: "Entries per CPU (`nf_conntrack_max`)."},
	{Path: "proxy.conntrack.min", Min: "0", Restart: []key.Condition{key.Always},
		Description: "The least number of entries, with `maxPerCore`."},
	{Path: "proxy.conntrack.tcpEstablishedTimeout", Min: "0s", Restart: []key.Condition{key.Always},
		Description: "How long an idle TCP connection keeps its entry."},
	{Path: "proxy.conntrack.tcpCloseWaitTimeout", Min: "0s", Restart: []key.Condition{key.Always},
		Description: "How long a TCP connection that one side closed keeps its entry."},
	{Path: "proxy.conntrack.tcpBeLiberal", Restart: []key.Condition{key.Always},
		Description: "Packets outside of the window belong to their connection."},
	{Path: "proxy.conntrack.udpTimeout", Min: "0s", Restart: []key.Condition{key.Always},
		Description: "How long a UDP flow without answer keeps its entry."},
	{Path: "proxy.conntrack.udpStreamTimeout", Min: "0s", Restart: []key.Condition{key.Always},
		Description: "How long a UDP flow with answers keeps its entry."},
	{Path: "proxy.conntrack.resetTCP", Restart: []key.Condition{key.Always},
		Description: "Ends TCP connections to endpoints that were removed, which otherwise go on until they time out."},
}
