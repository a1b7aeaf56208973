package verdicts

import "fmt"

// policies adds policies of all kinds.
func (c *randomCluster) policies() {
	for _, namespace := range namespaces {
		if !c.chance(4) { // else lookups depend on the others
			c.networkPolicy(namespace, "dns", object{
				"podSelector": object{}, "policyTypes": list{"Egress"},
				"egress": list{object{
					"to":    list{object{"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": "kube-system"}}}},
					"ports": list{object{"port": 53, "protocol": "UDP"}, object{"port": 53, "protocol": "TCP"}},
				}},
			})
		}
		for i := range c.IntN(4) {
			c.networkPolicy(namespace, fmt.Sprintf("np%d", i), c.policySpec())
		}
	}
	for i := range c.IntN(4) {
		c.clusterPolicy(fmt.Sprintf("cnp%d", i), i)
	}
}

func (c *randomCluster) networkPolicy(namespace, name string, spec object) {
	c.add("networking.k8s.io/v1", "NetworkPolicy", object{"namespace": namespace, "name": name}, object{"spec": spec})
}

// policySpec draws the spec of a NetworkPolicy.
func (c *randomCluster) policySpec() object {
	spec := object{"podSelector": c.selector("app", apps...)}
	types := pick(c, list{"Ingress"}, list{"Egress"}, list{"Ingress", "Egress"}, list{"Ingress"})
	spec["policyTypes"] = types
	for _, t := range types {
		key, peers := "ingress", "from"
		if t == "Egress" {
			key, peers = "egress", "to"
		}
		rules := list{}
		for range c.IntN(4) {
			rule := object{}
			if !c.chance(5) {
				rule[peers] = c.peers()
			}
			if !c.chance(3) {
				rule["ports"] = c.policyPorts()
			}
			rules = append(rules, rule)
		}
		spec[key] = rules
	}
	return spec
}

// selector draws a selector of labels.
func (c *randomCluster) selector(label string, values ...string) object {
	switch c.IntN(4) {
	case 0:
		return object{}
	case 1:
		return object{"matchExpressions": list{object{
			"key": label, "operator": pick(c, "In", "NotIn"), "values": list{pick(c, values...), pick(c, values...)},
		}}}
	}
	return object{"matchLabels": object{label: pick(c, values...)}}
}

// peers draws peers of a NetworkPolicy.
func (c *randomCluster) peers() (all list) {
	for range 1 + c.IntN(3) {
		switch c.IntN(4) {
		case 0:
			all = append(all, object{"podSelector": c.selector("app", apps...)})
		case 1:
			all = append(all, object{"namespaceSelector": c.selector("env", "prod", "test")})
		case 2:
			all = append(all, object{
				"namespaceSelector": c.selector("kubernetes.io/metadata.name", append([]string{"infra"}, namespaces...)...),
				"podSelector":       c.selector("tier", tiers...),
			})
		default:
			of := pick(c, blocks...)
			block := object{"cidr": of[0]}
			if len(of) > 1 && c.chance(2) {
				block["except"] = list{of[1+c.IntN(len(of)-1)]}
			}
			all = append(all, object{"ipBlock": block})
		}
	}
	return all
}

// policyPorts draws ports of a rule.
func (c *randomCluster) policyPorts() (all list) {
	for range 1 + c.IntN(2) {
		all = append(all, pick(c,
			object{"port": "http"}, object{"port": 8080}, object{"port": 8080, "endPort": 9000}, object{"port": metricsPort},
			object{"port": "stats", "protocol": "UDP"}, object{"protocol": "UDP"}, object{"protocol": "TCP"}, object{"port": 80},
		))
	}
	return all
}

// clusterPolicy adds a ClusterNetworkPolicy.
func (c *randomCluster) clusterPolicy(name string, i int) {
	spec := object{
		"tier": pick(c, "Admin", "Baseline"), "priority": 10 + i,
		"subject": pick(c,
			object{"namespaces": c.selector("env", "prod", "test")},
			object{"pods": object{
				"namespaceSelector": c.selector("kubernetes.io/metadata.name", namespaces...),
				"podSelector":       c.selector("app", apps...),
			}},
		),
	}
	for _, direction := range []string{"ingress", "egress"} {
		rules := list{}
		for range c.IntN(3) {
			rules = append(rules, c.clusterRule(direction))
		}
		if len(rules) > 0 {
			spec[direction] = rules
		}
	}
	c.add("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", object{"name": name}, object{"spec": spec})
}

func (c *randomCluster) clusterRule(direction string) object {
	rule := object{"action": pick(c, "Accept", "Deny", "Pass")}
	peers := "from"
	if direction == "egress" {
		peers = "to"
	}
	of := list{}
	for range 1 + c.IntN(2) {
		switch n := c.IntN(3); {
		case n == 0:
			of = append(of, object{"namespaces": c.selector("env", "prod", "test")})
		case n == 1 && direction == "egress":
			of = append(of, object{"networks": list{pick(c, "203.0.113.0/24", "10.244.2.0/24", "192.0.2.0/24", "fd00:10:244:1::/64")}})
		default:
			of = append(of, object{"pods": object{
				"namespaceSelector": c.selector("kubernetes.io/metadata.name", namespaces...),
				"podSelector":       c.selector("tier", tiers...),
			}})
		}
	}
	rule[peers] = of
	if c.chance(2) {
		rule["protocols"] = list{pick(c,
			object{"tcp": object{"destinationPort": object{"number": 8080}}},
			object{"tcp": object{"destinationPort": object{"range": object{"start": 8000, "end": 9000}}}},
			object{"destinationNamedPort": "http"},
			object{"udp": object{"destinationPort": object{"number": statsPort}}},
			object{"tcp": object{}},
		)}
	}
	return rule
}
