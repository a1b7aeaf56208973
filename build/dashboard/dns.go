package dashboard

func dns() Dashboard {
	return Dashboard{
		Name: "dns", Title: "DNS", Metric: "portolan_dns_request_size_bytes_count",
		Description: "Queries and answers of servers and agents, upstreams, the cache, and how fast changes take effect.",
		Rows: []Row{
			{"Queries", dnsQueries()}, {"Answers", dnsAnswers()}, {"Upstreams", dnsUpstreams()}, {"Cache", dnsCache()},
			{"Changes and zones", dnsChanges()},
		},
	}
}

func dnsQueries() []Panel {
	return []Panel{
		{
			Title: "Queries by process", Kind: Graph, Unit: Requests,
			Queries:     one(rate("portolan_dns_requests_total", "instance"), "{{instance}}"),
			Description: "Queries answered.",
		},
		{
			Title:       "Queries by type",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_dns_requests_total", "type"), "{{type}}"),
			Description: "Queries by the type of records. Resolvers of Pods ask for A and AAAA.",
		},
		{
			Title:       "Queries by zone",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_dns_requests_total", "zone"), "{{zone}}"),
			Description: "Queries by the zone that the name is in; a dot is for names outside the zones.",
		},
		{
			Title: "Queries by transport", Kind: Graph, Unit: Requests,
			Queries:     one(rate("portolan_dns_requests_total", "proto, family"), "{{proto}} {{family}}"),
			Description: "Much TCP means answers that do not fit into UDP, or clients that prefer it.",
		},
		{
			Title: "Latency", Kind: Graph, Unit: Seconds, Warn: 0.01,
			Queries:     quantiles("portolan_dns_request_duration_seconds", "proto", "{{proto}}"),
			Description: "Time to answer a query, including the wait for upstreams.",
		},
		{
			Title: "Search paths", Kind: Graph, Unit: Requests,
			Queries:     one(rate("portolan_dns_searches_total", "by, result"), "{{by}} {{result}}"),
			Description: "Queries that the server resolved through a search path, given by the name or an EDNS option.",
			Event:       "a client sends a search path",
		},
		{
			Title: "Sizes", Kind: Graph, Unit: Bytes, Queries: []Query{
				{
					"histogram_quantile(0.99, sum by (le) (rate(portolan_dns_request_size_bytes_bucket[$__rate_interval])))",
					"queries",
				},
				{
					"histogram_quantile(0.99, sum by (le) (rate(portolan_dns_response_size_bytes_bucket[$__rate_interval])))",
					"answers",
				},
			},
			Description: "The 99th percentile of the size of queries and answers.",
		},
		{
			Title: "Dropped",
			Kind:  Graph,
			Unit:  Packets,
			Warn:  1,
			Queries: []Query{
				{rate("portolan_dns_dropped_total", "proto"), "{{proto}}"},
				{rate("portolan_dns_rate_limited_total", ""), "rate limit"},
				{rate("portolan_query_log_dropped_total", ""), "lines of the query log"},
			},
			Description: "Packets that are malformed or denied by dns.access, answers that the rate limit dropped or " +
				"truncated, and lines of " +
				"the query log that were dropped.",
		},
	}
}

func dnsAnswers() []Panel {
	return []Panel{
		{
			Title: "Answers by response code", Kind: Graph, Unit: Requests,
			Queries:     one(rate("portolan_dns_requests_total", "rcode"), "{{rcode}}"),
			Description: "NXDOMAIN is common: resolvers try the names of the search path.",
		},
		{
			Title: "SERVFAIL by process", Kind: Graph, Unit: Share, Alarm: 0.01,
			Queries: one(`sum by (instance) (rate(portolan_dns_requests_total{rcode="SERVFAIL"}[$__rate_interval])) `+
				`/ sum by (instance) (rate(portolan_dns_requests_total[$__rate_interval]))`, "{{instance}}"),
			Description: "The share of answers that are SERVFAIL. See the reasons beside it.", Event: "an answer is SERVFAIL",
		},
		{
			Title:       "Reasons",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_dns_reasons_total", "reason"), "{{reason}}"),
			Description: "Why answers are negative, refused or stale; docs/operate.md explains each.",
			Event:       "there is such an answer",
		},
		{
			Title:   "Extended DNS Errors",
			Kind:    Graph,
			Unit:    Requests,
			Queries: one(rate("portolan_dns_ede_total", "code"), "{{code}}"),
			Description: "Extended DNS Errors (RFC 8914) by code: 14 is not loaded yet, 22 and 23 are upstreams " +
				"without an answer.",
			Event: "an answer has one",
		},
	}
}

func dnsUpstreams() []Panel {
	return []Panel{
		{
			Title: "Upstreams", Kind: Graph, Unit: Bool, Alarm: 1, Low: true,
			Queries:     one("min by (route, upstream) (portolan_forward_up)", "{{route}} {{upstream}}"),
			Description: "1 if all processes consider the upstream up, 0 if one considers it down.",
		},
		{
			Title: "Queries to upstreams", Kind: Graph, Unit: Requests,
			Queries:     one(rate("portolan_forward_queries_total", "route, upstream"), "{{route}} {{upstream}}"),
			Description: "Queries sent, including retries.",
		},
		{
			Title: "Latency of upstreams", Kind: Graph, Unit: Seconds, Warn: 0.2,
			Queries:     quantiles("portolan_forward_duration_seconds", "upstream", "{{upstream}}"),
			Description: "Time from a query to its reply.",
		},
		{
			Title: "Failures of upstreams", Kind: Graph, Unit: Requests, Warn: 1, Queries: []Query{
				{rate("portolan_forward_failures_total", "upstream"), "{{upstream}} network error"},
				{rate("portolan_forward_late_total", "upstream"), "{{upstream}} late"},
				{rate("portolan_forward_bad_replies_total", "upstream"), "{{upstream}} bad reply"},
			},
			Description: "Network errors, queries not answered within the usual time, and replies that match no query.",
		},
		{
			Title: "Round-trip time", Kind: Graph, Unit: Seconds,
			Queries:     one("max by (upstream) (portolan_forward_rtt_seconds)", "{{upstream}}"),
			Description: "The smoothed round-trip time by which upstreams are chosen.",
		},
		{
			Title:       "Waiting queries",
			Kind:        Graph,
			Unit:        Count,
			Queries:     one("sum by (instance) (portolan_forward_waiting)", "{{instance}}"),
			Description: "Queries that wait for an upstream now.",
		},
		{
			Title: "Joined and refused",
			Kind:  Graph,
			Unit:  Requests,
			Queries: []Query{
				{rate("portolan_forward_joined_total", ""), "joined"}, {rate("portolan_forward_refused_total", ""), "refused"},
			},
			Description: "Queries that waited for the same query of another client, and those not resolved because " +
				"too many waited.",
		},
		{
			Title: "Connections to upstreams", Kind: Graph, Unit: Requests, Queries: []Query{
				{
					rate("portolan_forward_connections_total", ""),
					"opened",
				},
				{rate("portolan_forward_connections_reused_total", ""), "reused"},
			},
			Description: "Connections that were opened, and queries over one that was there. UDP counts in neither.",
		},
	}
}

func dnsCache() []Panel {
	return []Panel{
		{
			Title: "Hits", Kind: Graph, Unit: Share, Queries: one("sum(rate(portolan_cache_hits_total[$__rate_interval])) / "+
				"(sum(rate(portolan_cache_hits_total[$__rate_interval])) + "+
				"sum(rate(portolan_cache_misses_total[$__rate_interval])))", "hits"),
			Description: "The share of forwarded queries that the cache answered.",
		},
		{
			Title: "Hits and misses",
			Kind:  Graph,
			Unit:  Requests,
			Queries: []Query{
				{rate("portolan_cache_hits_total", "type"), "{{type}}"},
				{rate("portolan_cache_misses_total", ""), "misses"},
				{rate("portolan_cache_prefetches_total", ""), "prefetches"},
			},
			Description: "Answers from the cache, fresh and stale; queries that went to an upstream; queries sent to " +
				"refresh an entry.",
		},
		{
			Title: "Memory of the cache", Kind: Graph, Unit: Bytes,
			Queries:     one("sum by (instance) (portolan_cache_size_bytes)", "{{instance}}"),
			Description: "About the memory that the entries take; at most dns.cache.size.",
		},
		{
			Title:       "Entries",
			Kind:        Graph,
			Unit:        Count,
			Queries:     one("sum by (instance) (portolan_cache_entries)", "{{instance}}"),
			Description: "Entries in the cache.",
		},
	}
}

func dnsChanges() []Panel {
	return []Panel{
		{
			Title: "Time until changes are answered", Kind: Graph, Unit: Seconds, Warn: 1,
			Queries:     quantiles("portolan_dns_programming_duration_seconds", "service_kind", "{{service_kind}}"),
			Description: "Kubernetes' DNS programming latency: from a change of endpoints until answers have it.",
			Event:       "endpoints change",
		},
		{
			Title: "Serials", Kind: Graph, Unit: Count, Queries: one("portolan_zone_serial", "{{instance}} {{zone}}"),
			Description: "The SOA's serial. Each server counts its own.",
		},
		{
			Title:   "Zone transfers",
			Kind:    Graph,
			Unit:    Requests,
			Queries: one(rate("portolan_transfer_queries_total", "kind, result"), "{{kind}} {{result}}"),
			Description: "Queries of secondaries. axfr_instead is a whole zone in response to IXFR: " +
				"dns.transfer.history may be too short.",
			Event: "dns.transfer allows transfers",
		},
		{
			Title: "Transferred", Kind: Graph, Unit: BytesPerSec,
			Queries:     one(rate("portolan_transfer_sent_bytes_total", "instance"), "{{instance}}"),
			Description: "Octets sent in zone transfers.", Event: "dns.transfer allows transfers",
		},
		{
			Title:       "NOTIFY",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_transfer_notifies_total", "result"), "{{result}}"),
			Description: "NOTIFY messages to secondaries.",
			Event:       "dns.transfer has secondaries to notify",
		},
	}
}
