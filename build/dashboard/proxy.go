package dashboard

func proxy() Dashboard {
	return Dashboard{
		Name: "proxy", Title: "Service proxy", Metric: "portolan_proxy_services_left_out",
		Description: "Services in the kernel of nodes: how fast changes are programmed, and which Services clients use.",
		Rows: []Row{
			{
				"Programming",
				[]Panel{
					{
						Title:       "Services left out",
						Kind:        Number,
						Unit:        Count,
						Alarm:       1,
						Queries:     one("sum(portolan_proxy_services_left_out)", "Services"),
						Description: "Services that are not served, since the memory limit of a proxy has no room for them.",
					},
					{
						Title: "Failed transactions", Kind: Number, Unit: Count, Alarm: 1,
						Queries:     one("sum(increase(portolan_proxy_sync_failures_total[5m]))", "failed"),
						Description: "Transactions within 5 minutes that the kernel refused.",
					},
					{
						Title:       "Repairs",
						Kind:        Number,
						Unit:        Count,
						Warn:        1,
						Queries:     one("sum(increase(portolan_proxy_repairs_total[15m]))", "repairs"),
						Description: "Times within 15 minutes that another program had changed the tables.",
					},
					{
						Title:   "Time until changes are in the kernel",
						Kind:    Graph,
						Unit:    Seconds,
						Warn:    1,
						Queries: quantiles("portolan_proxy_programming_duration_seconds", "", ""),
						Description: "Kubernetes' network programming latency: from what caused a change of endpoints, as its " +
							"controller noted it, until " +
							"the kernel has it.",
						Event: "endpoints change",
					},
					{
						Title:       "Transactions",
						Kind:        Graph,
						Unit:        Seconds,
						Queries:     quantiles("portolan_proxy_sync_duration_seconds", "kind", "{{kind}}"),
						Description: "Time to compile and program changes; full compares the whole table.",
						Event:       "Services change",
					},
					{
						Title: "Elements changed", Kind: Graph, Unit: PerSecond,
						Queries:     one(rate("portolan_proxy_elements_changed_total", "instance"), "{{instance}}"),
						Description: "Elements of nftables maps that were added or removed.",
					},
				},
			},
			{
				"Connections",
				[]Panel{
					{
						Title: "Connections by Service",
						Kind:  Graph,
						Unit:  PerSecond,
						Queries: one(
							"topk(20, sum by (namespace, service, port) "+
								"(rate(portolan_proxy_service_connections_total[$__rate_interval])))",
							"{{namespace}}/{{service}}:{{port}}",
						),
						Description: "Connections to ports of Services, forwarded or not; the twenty with the most.",
						Event:       "proxy.counters is on",
					},
					{
						Title: "Connections by kind of address", Kind: Graph, Unit: PerSecond,
						Queries:     one(rate("portolan_proxy_service_connections_total", "kind"), "{{kind}}"),
						Description: "Connections by the address: the cluster IP, an external one, a load balancer's, a node port.",
						Event:       "proxy.counters is on",
					},
					{
						Title: "Stale flows removed", Kind: Graph, Unit: PerSecond,
						Queries:     one(rate("kubeproxy_conntrack_reconciler_deleted_entries_total", "ip_family"), "{{ip_family}}"),
						Description: "Entries of connection tracking that led to endpoints that are gone.",
					},
				},
			},
		},
	}
}
