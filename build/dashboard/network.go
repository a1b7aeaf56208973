package dashboard

func network() Dashboard {
	return Dashboard{
		Name: "network", Title: "Network and agents", Metric: "process_start_time_seconds",
		Description: "Node agents: their addresses, copies of zones, the network of Pods, and addresses of load balancers.",
		Rows: []Row{
			{"Agents", agents()}, {"Copies of zones", copies()}, {"Network of Pods", podNetwork()},
			{"Addresses of load balancers", announcements()}, {"Controllers", controllers()},
		},
	}
}

func agents() []Panel {
	return []Panel{
		{
			Title: "Unhealthy agents", Kind: Number, Unit: Count, Alarm: 1,
			Queries:     one("count(portolan_node_network_healthy) - sum(portolan_node_network_healthy)", "agents"),
			Description: "Agents that lack their device, addresses or nftables rules: Pods there may have no DNS.",
		},
		{
			Title: "Repairs", Kind: Graph, Unit: Count, Warn: 3,
			Queries:     one("sum by (instance) (increase(portolan_node_network_repairs_total[15m]))", "{{instance}}"),
			Description: "Repairs within 15 minutes of the device, addresses or rules: another program removes them.",
		},
	}
}

func copies() []Panel {
	return []Panel{
		{
			Title:       "Copies by state",
			Kind:        Graph,
			Unit:        Count,
			Queries:     one("sum by (zone, state) (portolan_secondary_state)", "{{zone}} {{state}}"),
			Description: "Agents with a copy of each zone by its state. stale answers, loading does not.",
		},
		{
			Title:       "Age",
			Kind:        Graph,
			Unit:        Seconds,
			Warn:        60,
			Queries:     one("max by (instance) (portolan_secondary_age_seconds)", "{{instance}}"),
			Description: "Time since the copy was last known to be current; no answer is older.",
		},
		{
			Title: "Time until changes are answered", Kind: Graph, Unit: Seconds,
			Queries: one("sum(rate(portolan_secondary_lag_seconds_sum[$__rate_interval])) "+
				"/ sum(rate(portolan_secondary_lag_seconds_count[$__rate_interval]))", "mean"),
			Description: "Time from a NOTIFY until answers have the change.", Event: "the zones change",
		},
		{
			Title: "Transfers", Kind: Graph, Unit: Requests, Queries: []Query{
				{rate("portolan_secondary_transfers_total", "kind"), "{{kind}}"},
				{rate("portolan_secondary_failures_total", ""), "failed"},
				{rate("portolan_secondary_notifies_total", "result"), "NOTIFY {{result}}"},
			},
			Description: "Transfers by kind, those that failed, and NOTIFY messages.",
		},
		{
			Title:       "Transferred",
			Kind:        Graph,
			Unit:        BytesPerSec,
			Queries:     one(rate("portolan_secondary_transfer_bytes_total", "instance"), "{{instance}}"),
			Description: "Octets received in transfers.",
		},
		{
			Title:       "Servers followed",
			Kind:        Table,
			Unit:        Count,
			Queries:     one("count by (server) (portolan_secondary_followed == 1)", ""),
			Description: "How many agents transfer from each server.",
		},
		{
			Title:       "Writes",
			Kind:        Graph,
			Unit:        Count,
			Warn:        1,
			Queries:     one("sum by (instance) (increase(portolan_secondary_write_errors_total[15m]))", "{{instance}}"),
			Description: "Failed writes of the copies to disk within 15 minutes.",
			Event:       "node.file is set",
		},
	}
}

func podNetwork() []Panel {
	return []Panel{
		{
			Title: "Nodes without the plugin", Kind: Number, Unit: Count, Alarm: 1,
			Queries:     one("count(portolan_network_cni_installed) - sum(portolan_network_cni_installed)", "nodes"),
			Description: "Nodes on which no Pod can start.",
		},
		{
			Title: "Failed transactions", Kind: Number, Unit: Count, Alarm: 1,
			Queries:     one("sum(increase(portolan_network_sync_failures_total[5m]))", "failed"),
			Description: "Transactions of routes within 5 minutes that the kernel refused.",
		},
		{
			Title:       "Repairs",
			Kind:        Number,
			Unit:        Count,
			Warn:        1,
			Queries:     one("sum(increase(portolan_network_repairs_total[15m]))", "repairs"),
			Description: "Times within 15 minutes that another program had changed the network's table.",
		},
		{
			Title: "Addresses in use",
			Kind:  Graph,
			Unit:  Share,
			Warn:  0.8,
			Alarm: 0.95,
			Queries: one(
				`sum by (instance, range) (portolan_network_addresses{state="used"}) / sum by (instance, range) `+
					`(portolan_network_addresses_capacity)`,
				"{{instance}} {{range}}",
			),
			Description: "The share of the addresses of a node's range that Pods have.",
		},
		{
			Title: "Requests of the CNI plugin", Kind: Graph, Unit: Requests,
			Queries:     one(rate("portolan_network_cni_duration_seconds_count", "verb, result"), "{{verb}} {{result}}"),
			Description: "Pods that are connected (add) and disconnected (del), and checks.",
		},
		{
			Title: "Time to connect Pods", Kind: Graph, Unit: Seconds, Warn: 1,
			Queries:     quantiles("portolan_network_cni_duration_seconds", "verb", "{{verb}}"),
			Description: "Time of requests of the CNI plugin.", Event: "a Pod starts",
		},
		{
			Title:       "Transactions of routes",
			Kind:        Graph,
			Unit:        Seconds,
			Queries:     quantiles("portolan_network_sync_duration_seconds", "", ""),
			Description: "Time to program routes and ranges.",
			Event:       "Nodes change",
		},
		{
			Title: "Encrypted tunnels",
			Kind:  Graph,
			Unit:  Count,
			Queries: []Query{
				{"min(portolan_network_wireguard_peers)", "peers of the node with the fewest"},
				{"max(portolan_network_wireguard_nodes_without_key)", "nodes without a key"},
			},
			Description: "Other nodes with an encrypted tunnel, and those without a key for one.",
			Event:       "network.encryption is on",
		},
	}
}

func announcements() []Panel {
	const event = "network.announce.enabled is on"
	return []Panel{
		{
			Title: "Addresses",
			Kind:  Graph,
			Unit:  Count,
			Queries: []Query{
				{
					"max(portolan_announce_addresses)",
					"of load balancers",
				},
				{"sum(portolan_announce_addresses_owned)", "answered for, on each link"},
				{"max(portolan_announce_addresses_unclaimed)", "that no node can serve"},
			},
			Description: "Addresses of load balancers, those that nodes answer for, and those that no node can serve.",
			Event:       event,
		},
		{
			Title: "Changes of nodes", Kind: Graph, Unit: PerSecond, Queries: []Query{
				{rate("portolan_announce_taken_total", ""), "taken"}, {rate("portolan_announce_given_total", ""), "given"},
			},
			Description: "How often nodes began and stopped to answer for an address.", Event: event,
		},
		{
			Title: "ARP and Neighbor Discovery",
			Kind:  Graph,
			Unit:  Packets,
			Queries: []Query{
				{
					rate("portolan_announce_replies_total", ""),
					"answers",
				},
				{rate("portolan_announce_limited_total", ""), "without an answer, by the limits"},
				{
					rate("portolan_announce_conflicts_total", ""),
					"conflicts",
				},
				{rate("portolan_announce_malformed_total", ""), "malformed"},
				{rate("portolan_announce_unsent_total", ""), "not sent"},
			},
			Description: "Answers, and what went wrong. A conflict is another host that says that it has an address " +
				"of the node.",
			Event: event,
		},
		{
			Title: "BGP", Kind: Graph, Unit: Bool, Alarm: 1, Low: true,
			Queries:     one("min by (instance, peer) (portolan_announce_bgp_established)", "{{instance}} {{peer}}"),
			Description: "1 if the router has a session with the node.", Event: "network.announce.bgp has peers",
		},
	}
}

func controllers() []Panel {
	return []Panel{
		{
			Title:       "Nodes without a range",
			Kind:        Number,
			Unit:        Count,
			Alarm:       1,
			Queries:     one("max(portolan_pod_ranges_missing)", "Nodes"),
			Description: "Nodes that get no range of Pod addresses, because all are taken.",
		},
		{
			Title: "Load balancers without address",
			Kind:  Number,
			Unit:  Count,
			Warn:  1,
			Queries: one(
				"max(portolan_load_balancer_services_lacking)",
				"Services",
			),
			Description: "Services of type LoadBalancer that lack an address.",
		},
		{
			Title:       "Ranges of Pods",
			Kind:        Graph,
			Unit:        Count,
			Queries:     one("max by (family, state) (portolan_pod_ranges)", "{{family}} {{state}}"),
			Description: "Ranges for Nodes that are free and taken.",
		},
		{
			Title: "Pools of load balancers", Kind: Graph, Unit: Count,
			Queries: one("max by (pool, family, state) (portolan_load_balancer_addresses)", "{{pool}} {{family}} "+
				"{{state}}"),
			Description: "Addresses of pools that are assigned, reserved and free.",
		},
		{
			Title: "Writes", Kind: Graph, Unit: PerSecond, Queries: []Query{
				{rate("portolan_pod_range_writes_total", "result"), "ranges {{result}}"},
				{rate("portolan_load_balancer_writes_total", "result"), "load balancers {{result}}"},
			},
			Description: "Attempts to write ranges of Nodes and addresses of Services.",
		},
		{
			Title:       "Reviews of the webhook",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_webhook_reviews_total", "webhook, result"), "{{webhook}} {{result}}"),
			Description: "Objects reviewed; failed ones were allowed because they could not be reviewed.",
			Event:       "the webhook reviews an object",
		},
		{
			Title: "EndpointSlices", Kind: Graph, Unit: PerSecond,
			Queries:     one(rate("portolan_controller_syncs_total", "result"), "{{result}}"),
			Description: "Reconciliations of a Service's EndpointSlices.",
		},
	}
}
