package dashboard

func gateway() Dashboard {
	return Dashboard{
		Name:   "gateway",
		Title:  "Gateway",
		Metric: "portolan_gateway_ports",
		Description: "Requests through Ingresses and Gateway API: rates, errors and durations by route, " +
			"endpoints, certificates and statuses.",
		Rows: []Row{
			{"State", gatewayState()}, {"Requests", gatewayRequests()}, {"Endpoints and changes", gatewayChanges()},
			{"TCP and UDP", gatewayStreams()}, {"Statuses", gatewayStatuses()},
		},
	}
}

func gatewayState() []Panel {
	return []Panel{
		{
			Title: "Gateways", Kind: Number, Unit: Count, Queries: one("count(portolan_gateway_ports)", "gateways"),
			Description: "Gateways that Prometheus scrapes.",
		},
		{
			Title:       "Ports not bound",
			Kind:        Number,
			Unit:        Count,
			Alarm:       1,
			Queries:     one("max(portolan_gateway_ports_unbound)", "ports"),
			Description: "Ports of Ingresses and listeners that a gateway cannot bind.",
		},
		{
			Title: "First certificate expires",
			Kind:  Number,
			Unit:  Ago,
			Queries: one(
				"min(portolan_gateway_certificate_expiry_timestamp_seconds) * 1000",
				"expires",
			),
			Description: "When the first certificate expires that clients get.",
		},
		{
			Title:       "Leaders",
			Kind:        Number,
			Unit:        Count,
			Alarm:       1,
			Low:         true,
			Queries:     one("sum(portolan_gateway_leader)", "leaders"),
			Description: "1 if a gateway writes statuses.",
		},
		{
			Title:       "Requests now",
			Kind:        Number,
			Unit:        Count,
			Queries:     one("sum(portolan_gateway_requests_under_way)", "requests"),
			Description: "Requests and upgraded connections that are served now.",
		},
		{
			Title: "Closed for memory", Kind: Number, Unit: Count, Warn: 1,
			Queries:     one("sum(increase(portolan_gateway_connections_closed_for_memory_total[15m]))", "connections"),
			Description: "Connections within 15 minutes that were closed as the memory was nearly used up.",
		},
	}
}

func gatewayRequests() []Panel {
	return []Panel{
		{
			Title: "Requests by route", Kind: Graph, Unit: Requests,
			Queries:     one("topk(20, "+rate("portolan_gateway_requests_total", "route")+")", "{{route}}"),
			Description: "Requests of the twenty routes with the most; none is requests that no route matched.",
		},
		{
			Title:       "Requests by status",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_gateway_requests_total", "code"), "{{code}}"),
			Description: "Requests by the status of the response.",
		},
		{
			Title: "5xx by route",
			Kind:  Graph,
			Unit:  Share,
			Warn:  0.01,
			Alarm: 0.05,
			Queries: one(`sum by (route) (rate(portolan_gateway_requests_total{code=~"5.."}[$__rate_interval])) `+
				`/ sum by (route) (rate(portolan_gateway_requests_total[$__rate_interval])) > 0`, "{{route}}"),
			Description: "The share of responses that are errors of the gateway or of endpoints.",
			Event:       "a response is an error",
		},
		{
			Title:       "Duration by route",
			Kind:        Graph,
			Unit:        Seconds,
			Queries:     quantiles("portolan_gateway_request_duration_seconds", "route", "{{route}}"),
			Description: "From the head of a request to the end of its response.",
		},
		{
			Title:       "Responses of the gateway",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_gateway_own_responses_total", "reason"), "{{reason}}"),
			Description: "Responses that no endpoint gave, by the reason.",
			Event:       "there is such a response",
		},
		{
			Title:       "Refused requests",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_gateway_refused_total", "reason"), "{{reason}}"),
			Description: "Requests refused before a route was looked for, such as malformed ones.",
			Event:       "a request is refused",
		},
		{
			Title:       "Sent",
			Kind:        Graph,
			Unit:        BytesPerSec,
			Queries:     one(rate("portolan_gateway_sent_bytes_total", "instance"), "{{instance}}"),
			Description: "Bodies sent to clients.",
		},
		{
			Title: "Connections and limits",
			Kind:  Graph,
			Unit:  Share,
			Warn:  0.8,
			Alarm: 1,
			Queries: one(
				`max by (instance, account) (portolan_budget_used{account=~"gateway.*"} / `+
					`portolan_budget_limit{account=~"gateway.*"})`,
				"{{instance}} {{account}}",
			),
			Description: "How many connections, requests over HTTP/2 and sessions of UDP there are of those that may be.",
		},
		{
			Title: "Lost lines and spans", Kind: Graph, Unit: PerSecond, Warn: 1,
			Queries:     one(rate("portolan_gateway_access_log_dropped_total", "instance"), "{{instance}}"),
			Description: "Lines of the access log that were dropped.",
		},
	}
}

func gatewayChanges() []Panel {
	return []Panel{
		{
			Title: "Endpoints", Kind: Graph, Unit: Count, Queries: []Query{
				{
					"max(portolan_gateway_endpoints)",
					"endpoints",
				},
				{"max(portolan_gateway_endpoints_ejected)", "that get no requests for a while"},
				{"max(portolan_gateway_upstreams)", "ports of Services"},
			},
			Description: "Endpoints of the Services that rules refer to, and those that failed several times in a row.",
		},
		{
			Title:       "Attempts",
			Kind:        Graph,
			Unit:        Requests,
			Queries:     one(rate("portolan_gateway_attempts_total", "instance"), "{{instance}}"),
			Description: "Requests to endpoints, also those that are sent again.",
		},
		{
			Title: "Time until changes are served", Kind: Graph, Unit: Seconds, Warn: 2,
			Queries:     quantiles("portolan_gateway_programming_duration_seconds", "", ""),
			Description: "From what caused a change of endpoints until requests are served by it.", Event: "endpoints change",
		},
		{
			Title:       "Compiling",
			Kind:        Graph,
			Unit:        Seconds,
			Queries:     quantiles("portolan_gateway_compile_duration_seconds", "", ""),
			Description: "From the notice of a change until requests are served by it.",
			Event:       "something changes",
		},
	}
}

func gatewayStreams() []Panel {
	return []Panel{
		{
			Title:       "Connections that ended",
			Kind:        Graph,
			Unit:        PerSecond,
			Queries:     one(rate("portolan_gateway_streams_total", "route, result"), "{{route}} {{result}}"),
			Description: "Connections of TLSRoutes and TCPRoutes, and why they ended; done if their ends ended them.",
		},
		{
			Title: "UDP", Kind: Graph, Unit: PerSecond, Queries: []Query{
				{rate("portolan_gateway_udp_datagrams_total", "to"), "datagrams to the {{to}}"},
				{rate("portolan_gateway_udp_sessions_total", "result"), "sessions {{result}}"},
			},
			Description: "Datagrams passed on, and sessions that ended.",
		},
		{
			Title: "Passed on", Kind: Graph, Unit: BytesPerSec,
			Queries: one(rate("portolan_gateway_passed_bytes_total", "transport, direction"), "{{transport}} "+
				"{{direction}}"),
			Description: "Octets of connections and sessions that have ended.",
		},
		{
			Title:       "Sessions of UDP",
			Kind:        Graph,
			Unit:        Count,
			Queries:     one("sum by (instance) (portolan_gateway_udp_sessions)", "{{instance}}"),
			Description: "Sessions now.",
		},
	}
}

func gatewayStatuses() []Panel {
	return []Panel{
		{
			Title:       "Writes",
			Kind:        Graph,
			Unit:        PerSecond,
			Queries:     one(rate("portolan_gateway_status_writes_total", "kind, result"), "{{kind}} {{result}}"),
			Description: "Attempts to write statuses; unneeded if the API had that status already.",
		},
		{
			Title:       "Waiting",
			Kind:        Graph,
			Unit:        Count,
			Warn:        100,
			Queries:     one("max(portolan_gateway_statuses_waiting)", "objects"),
			Description: "Objects whose status the gateway that leads is to write.",
		},
	}
}
