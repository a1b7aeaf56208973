package dashboard

// All returns the dashboards in the order in which an operator reads them.
func All() []Dashboard {
	return []Dashboard{overview(), dns(), proxy(), policy(), network(), gateway()}
}

// one is a single query.
func one(expr, legend string) []Query { return []Query{{expr, legend}} }

// quantiles are queries of the 50th and the 99th percentile of a histogram, by labels that legend names.
func quantiles(histogram, by, legend string) []Query {
	le, suffix := "le", ""
	if by != "" {
		le, suffix = "le, "+by, " "+legend
	}
	rate := "sum by (" + le + ") (rate(" + histogram + "_bucket[$__rate_interval])))"
	return []Query{
		{"histogram_quantile(0.5, " + rate, "50th percentile" + suffix},
		{"histogram_quantile(0.99, " + rate, "99th percentile" + suffix},
	}
}

// rate is the rate of a counter, summed by labels.
func rate(counter, by string) string {
	sum := "sum"
	if by != "" {
		sum += " by (" + by + ")"
	}
	return sum + " (rate(" + counter + "[$__rate_interval]))"
}

func overview() Dashboard {
	return Dashboard{
		Name:   "overview",
		Title:  "Overview",
		Metric: "portolan_build_info",
		Description: "All processes of Portolan: what is up, what is stale, and how much DNS, connections and " +
			"requests there are.",
		Rows: []Row{
			{"State", overviewState()},
			{"Traffic", overviewTraffic()},
			{"Failures", overviewFailures()},
			{"API server", apiServer()},
			{"Resources", resources()},
		},
	}
}

func overviewState() []Panel {
	return []Panel{
		{
			Title: "Processes", Kind: Number, Unit: Count, Queries: one("count(portolan_build_info)", "processes"),
			Description: "Processes of Portolan that Prometheus scrapes.",
		},
		{
			Title:       "Servers",
			Kind:        Number,
			Unit:        Count,
			Queries:     one("count(count by (instance) (portolan_zone_serial))", "servers"),
			Description: "Processes that answer for the cluster's zones: servers, and agents with a copy of the zones.",
		},
		{
			Title: "Agents", Kind: Number, Unit: Count, Queries: one("count(portolan_node_network_healthy)", "agents"),
			Description: "Node agents with the part dns.", Event: "there are agents",
		},
		{
			Title: "Gateways", Kind: Number, Unit: Count, Queries: one("count(portolan_gateway_ports)", "gateways"),
			Description: "Gateways of Ingresses and Gateway API.", Event: "there are gateways",
		},
		{
			Title: "Kinds that are not live", Kind: Number, Unit: Count, Warn: 1,
			Queries:     one(`sum(portolan_source_state{state!="live"})`, "kinds"),
			Description: "Kinds of objects, counted for each process, that are loading, come from a snapshot, or are stale.",
		},
		{
			Title: "Refused configurations", Kind: Number, Unit: Count, Alarm: 1,
			Queries:     one("count(portolan_config_reload_success) - sum(portolan_config_reload_success)", "processes"),
			Description: "Processes whose configuration file is invalid: they keep the configuration that they had.",
		},
		{
			Title: "Versions", Kind: Table, Unit: Count, Queries: one("count by (version, goversion) "+
				"(portolan_build_info)", ""),
			Description: "Processes of each version. There are two during a roll-out.",
		},
		{
			Title:   "Staleness",
			Kind:    Graph,
			Unit:    Seconds,
			Warn:    60,
			Queries: one("max by (kind) (portolan_source_staleness_seconds)", "{{kind}}"),
			Description: "The longest time since a process heard of a kind of objects from the API server. 0 while " +
				"its watch is live.",
		},
		{
			Title: "Objects", Kind: Graph, Unit: Count, Queries: one("max by (kind) (portolan_model_objects)", "{{kind}}"),
			Description: "Objects that processes hold in memory, of each kind.",
		},
	}
}

func overviewTraffic() []Panel {
	return []Panel{
		{
			Title: "DNS queries", Kind: Graph, Unit: Requests,
			Queries:     one(rate("portolan_dns_requests_total", "instance"), "{{instance}}"),
			Description: "Queries answered by each process. A process without queries may be missing from a Service.",
		},
		{
			Title: "DNS latency", Kind: Graph, Unit: Seconds, Warn: 0.01,
			Queries:     quantiles("portolan_dns_request_duration_seconds", "", ""),
			Description: "Time to answer a query, including the wait for upstreams.",
		},
		{
			Title: "Requests through gateways", Kind: Graph, Unit: Requests,
			Queries:     one(`sum by (code) (rate(portolan_gateway_requests_total[$__rate_interval]))`, "{{code}}"),
			Description: "Requests by the status of the response.", Event: "a gateway has served a request",
		},
		{
			Title:   "Packets denied by policies",
			Kind:    Graph,
			Unit:    Packets,
			Queries: one(rate("portolan_policy_packets_total", "event"), "{{event}}"),
			Description: "Packets that policies denied (deny), would deny in audit mode (audit), or that no Pod may " +
				"send (unknown, forged).",
			Event: "an agent enforces policies",
		},
		{
			Title: "Programming of Services", Kind: Graph, Unit: Seconds, Warn: 1,
			Queries:     quantiles("portolan_proxy_sync_duration_seconds", "", ""),
			Description: "Time to compile changes of Services and to program them into the kernel.",
			Event:       "a proxy has programmed a change",
		},
		{
			Title: "Copies of zones", Kind: Graph, Unit: Seconds, Warn: 60,
			Queries:     one("max by (zone) (portolan_secondary_age_seconds)", "{{zone}}"),
			Description: "The age of the oldest copy of each zone on a node.", Event: "an agent has a copy of the zones",
		},
	}
}

func overviewFailures() []Panel {
	return []Panel{
		{
			Title: "SERVFAIL", Kind: Graph, Unit: Share, Warn: 0.001, Alarm: 0.01,
			Queries: one(`sum(rate(portolan_dns_requests_total{rcode="SERVFAIL"}[$__rate_interval])) `+
				`/ sum(rate(portolan_dns_requests_total[$__rate_interval])) or vector(0)`, "SERVFAIL"),
			Description: "The share of answers that are SERVFAIL.",
		},
		{
			Title: "5xx of gateways", Kind: Graph, Unit: Share, Warn: 0.01, Alarm: 0.05,
			Queries: one(`sum(rate(portolan_gateway_requests_total{code=~"5.."}[$__rate_interval])) `+
				`/ sum(rate(portolan_gateway_requests_total[$__rate_interval])) or vector(0)`, "5xx"),
			Description: "The share of responses that are errors of the gateway or of endpoints.",
		},
		{
			Title: "The kernel refused changes", Kind: Graph, Unit: Count, Alarm: 1, Queries: []Query{
				{"sum(increase(portolan_proxy_sync_failures_total[5m]))", "Services"},
				{"sum(increase(portolan_policy_sync_failures_total[5m]))", "policies"},
				{"sum(increase(portolan_network_sync_failures_total[5m]))", "routes"},
			},
			Description: "Transactions within 5 minutes that the kernel refused. What was there before stays in force.",
		},
	}
}

func apiServer() []Panel {
	return []Panel{
		{
			Title:       "Events",
			Kind:        Graph,
			Unit:        PerSecond,
			Queries:     one(rate("portolan_source_events_total", "kind"), "{{kind}}"),
			Description: "Changes of objects read from the API server.",
		},
		{
			Title: "Invalid objects", Kind: Graph, Unit: Count, Warn: 1,
			Queries:     one("max by (kind) (portolan_source_invalid_objects)", "{{kind}}"),
			Description: "Objects whose last version is invalid: the last good one stays in use. The log names them.",
		},
		{
			Title:       "Snapshot writes",
			Kind:        Graph,
			Unit:        Seconds,
			Queries:     one("time() - max by (instance) (portolan_snapshot_write_timestamp_seconds)", "{{instance}}"),
			Description: "Time since a snapshot was last written. It is written after changes only.",
			Event:       "a snapshot is written",
		},
	}
}

func resources() []Panel {
	return []Panel{
		{
			Title:       "CPU",
			Kind:        Graph,
			Unit:        Count,
			Queries:     one("rate(process_cpu_seconds_total[$__rate_interval])", "{{job}} {{instance}}"),
			Description: "Processors in use.",
		},
		{
			Title: "Memory", Kind: Graph, Unit: Bytes, Queries: one("process_resident_memory_bytes", "{{job}} {{instance}}"),
			Description: "Resident memory.",
		},
		{
			Title: "Goroutines", Kind: Graph, Unit: Count, Queries: one("go_goroutines", "{{job}} {{instance}}"),
			Description: "Goroutines. They grow with queries that wait for upstreams, and with connections.",
		},
		{
			Title: "Limits",
			Kind:  Graph,
			Unit:  Share,
			Warn:  0.8,
			Alarm: 1,
			Queries: one(
				"max by (instance, account) (portolan_budget_used / portolan_budget_limit)",
				"{{instance}} {{account}}",
			),
			Description: "How much is in use of what may be in use at once: connections, waiting queries, requests.",
		},
		{
			Title:   "Refused for limits",
			Kind:    Graph,
			Unit:    PerSecond,
			Warn:    1,
			Queries: one(rate("portolan_budget_refused_total", "account, reason"), "{{account}} {{reason}}"),
			Description: "Entries refused, or ended for others, because the limit was reached (full) or the client " +
				"had its share (source).",
		},
		{
			Title: "File descriptors", Kind: Graph, Unit: Share, Warn: 0.8,
			Queries:     one("process_open_fds / process_max_fds", "{{job}} {{instance}}"),
			Description: "How many of the file descriptors that the process may have are open.",
		},
	}
}
