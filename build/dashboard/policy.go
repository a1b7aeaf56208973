package dashboard

func policy() Dashboard {
	return Dashboard{
		Name:   "policy",
		Title:  "Network policies",
		Metric: "portolan_policy_pods",
		Description: "NetworkPolicies in the kernel of nodes: what they deny, how fast they hold, and policies by " +
			"domain name.",
		Rows: []Row{
			{"Packets", policyPackets()},
			{"Enforcement", policyEnforcement()},
			{"Domain names", policyDomains()},
		},
	}
}

func policyPackets() []Panel {
	return []Panel{
		{
			Title:   "Packets",
			Kind:    Graph,
			Unit:    Packets,
			Queries: one(rate("portolan_policy_packets_total", "direction, event"), "{{direction}} {{event}}"),
			Description: "Packets that rules denied (deny), would deny in audit mode (audit), of addresses that no " +
				"Pod has (unknown), and " +
				"with a source that is not the Pod's (forged). portolan policy log names the rule of each.",
		},
		{
			Title: "Denied by node",
			Kind:  Graph,
			Unit:  Packets,
			Queries: one(
				`sum by (instance) (rate(portolan_policy_packets_total{event="deny"}[$__rate_interval]))`,
				"{{instance}}",
			),
			Description: "Packets that rules denied, by the agent.",
		},
		{
			Title: "Log of packets", Kind: Graph, Unit: PerSecond, Queries: []Query{
				{
					rate("portolan_policy_log_lines_total", ""),
					"lines",
				},
				{rate("portolan_policy_log_suppressed_total", ""), "without a line"},
			},
			Description: "Lines of the log of packets, and packets without one because of policy.log.rate.",
		},
		{
			Title: "Connections ended", Kind: Graph, Unit: PerSecond,
			Queries:     one(rate("portolan_policy_flows_ended_total", "instance"), "{{instance}}"),
			Description: "Connections that were ended because a change of policies does not allow them any more.",
		},
	}
}

func policyEnforcement() []Panel {
	return []Panel{
		{
			Title: "Failed transactions", Kind: Number, Unit: Count, Alarm: 1,
			Queries:     one("sum(increase(portolan_policy_sync_failures_total[5m]))", "failed"),
			Description: "Transactions within 5 minutes that the kernel refused: new policies do not hold there.",
		},
		{
			Title:       "Repairs",
			Kind:        Number,
			Unit:        Count,
			Warn:        1,
			Queries:     one("sum(increase(portolan_policy_repairs_total[15m]))", "repairs"),
			Description: "Times within 15 minutes that another program had changed the table.",
		},
		{
			Title: "Nodes without the plugin", Kind: Number, Unit: Count, Alarm: 1,
			Queries:     one("count(portolan_policy_cni_installed) - sum(portolan_policy_cni_installed)", "nodes"),
			Description: "Nodes on which Pods start before their policies hold.", Event: "policy.cni.install is on",
		},
		{
			Title: "Pods", Kind: Number, Unit: Count, Queries: one("sum(portolan_policy_pods)", "Pods"),
			Description: "Pods whose packets are judged.",
		},
		{
			Title:       "Transactions",
			Kind:        Graph,
			Unit:        Seconds,
			Warn:        1,
			Queries:     quantiles("portolan_policy_sync_duration_seconds", "kind", "{{kind}}"),
			Description: "Time to compile changes and to program them, from when the agent has read them.",
			Event:       "policies or Pods change",
		},
		{
			Title: "Pods that start", Kind: Graph, Unit: Seconds, Warn: 1,
			Queries:     quantiles("portolan_policy_pod_admission_duration_seconds", "result", "{{result}}"),
			Description: "How long Pods waited until their rules were in the kernel.", Event: "a Pod starts",
		},
		{
			Title: "In the kernel", Kind: Graph, Unit: Count, Queries: []Query{
				{
					"sum(portolan_policy_chains)",
					"chains",
				},
				{"sum(portolan_policy_sets)", "sets"},
				{"sum(portolan_policy_elements)", "elements"},
			},
			Description: "Chains of rules, sets of peers, and their elements.",
		},
		{
			Title: "Passes over connections", Kind: Graph, Unit: Seconds,
			Queries:     quantiles("portolan_policy_flows_pass_duration_seconds", "", ""),
			Description: "Time to look at all connections after a change of policies.", Event: "policies change",
		},
	}
}

func policyDomains() []Panel {
	return []Panel{
		{
			Title: "Names and addresses", Kind: Graph, Unit: Count, Queries: []Query{
				{"sum(portolan_policy_domain_names)", "names"}, {"sum(portolan_policy_domain_elements)", "addresses in sets"},
			},
			Description: "Domain names of policies whose addresses are known, and their addresses.",
		},
		{
			Title: "Limits", Kind: Graph, Unit: PerSecond, Warn: 1, Queries: []Query{
				{rate("portolan_policy_domain_evictions_total", ""), "removed for others"},
				{rate("portolan_policy_domain_overflows_total", "limit"), "not added: {{limit}}"},
			},
			Description: "Addresses that were removed so that others had room, and those that were not added, by the limit.",
		},
		{
			Title: "Answers held", Kind: Graph, Unit: PerSecond, Queries: []Query{
				{
					rate("portolan_policy_answers_held_total", ""),
					"held",
				},
				{rate("portolan_policy_answers_late_total", ""), "left too early"},
			},
			Description: "Answers that waited until the kernel had their addresses, and those that left before.",
		},
	}
}
