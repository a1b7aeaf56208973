package alloc

import "testing"

// TestUpdate checks how allocations change with manifests.
func TestUpdate(t *testing.T) {
	const newSingle = "SingleStack IPv4 new"
	for name, test := range map[string]struct {
		ranges string
		steps  []step
	}{
		"a label changes nothing": {dual, []step{
			{"type=LoadBalancer local policy=PreferDualStack", "PreferDualStack IPv4,IPv6 new,new new health=new"},
			{"type=LoadBalancer local policy=PreferDualStack label=a", "PreferDualStack IPv4,IPv6 kept,kept kept health=kept"},
		}},
		"single to dual": {dual, []step{
			{"", newSingle},
			{"policy=PreferDualStack", "PreferDualStack IPv4,IPv6 kept,new"},
			{"policy=RequireDualStack", "RequireDualStack IPv4,IPv6 kept,kept"},
		}},
		"single to dual, the second address given": {dual, []step{
			{"ip=10.96.0.10", "SingleStack IPv4 10.96.0.10"},
			{"policy=RequireDualStack ip=10.96.0.10,fd00:96::a", "RequireDualStack IPv4,IPv6 kept,fd00:96::a"},
		}},
		"single to dual, the second family given": {dual, []step{
			{"families=IPv6", "SingleStack IPv6 new"},
			{"families=IPv6,IPv4 policy=PreferDualStack", "PreferDualStack IPv6,IPv4 kept,new"},
		}},
		"single to dual, families in the reverse order": {dual, []step{
			{"ip=10.96.6.219", "SingleStack IPv4 10.96.6.219"},
			{"policy=RequireDualStack families=IPv6,IPv4", "refused: spec.clusterIPs[0]: Invalid value: \"10.96.6.219\": expected an IPv6 value as indicated by `ipFamilies[0]`"},
		}},
		"dual to single": {dual, []step{
			{"policy=RequireDualStack families=IPv6,IPv4", "RequireDualStack IPv6,IPv4 new,new"},
			{"policy=SingleStack families=IPv6,IPv4", "SingleStack IPv6 kept"},
			{"policy=SingleStack", "SingleStack IPv6 kept"},
		}},
		"dual to single, families not given": {dual, []step{
			{"policy=PreferDualStack", "PreferDualStack IPv4,IPv6 new,new"},
			{"policy=SingleStack", "SingleStack IPv4 kept"},
			{"policy=PreferDualStack", "PreferDualStack IPv4,IPv6 kept,new"},
		}},
		"dual to single, one address given": {dual, []step{
			{"policy=PreferDualStack ip=10.96.0.1,fd00:96::1", "PreferDualStack IPv4,IPv6 10.96.0.1,fd00:96::1"},
			{"policy=SingleStack ip=10.96.0.1", "SingleStack IPv4 kept"},
		}},
		"a policy that is no longer given stays": {dual, []step{
			{"policy=RequireDualStack", "RequireDualStack IPv4,IPv6 new,new"},
			{"", "RequireDualStack IPv4,IPv6 kept,kept"},
		}},
		"families that are no longer given stay": {dual, []step{
			{"policy=RequireDualStack families=IPv6,IPv4", "RequireDualStack IPv6,IPv4 new,new"},
			{"policy=RequireDualStack", "RequireDualStack IPv6,IPv4 kept,kept"},
		}},
		"a family taken away needs a policy": {dual, []step{
			{"policy=PreferDualStack families=IPv4,IPv6", "PreferDualStack IPv4,IPv6 new,new"},
			{"policy=PreferDualStack families=IPv4", `refused: spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be 'SingleStack' to release the secondary IP family`},
			{"policy=PreferDualStack families=IPv4,IPv6 label=a", "PreferDualStack IPv4,IPv6 kept,kept"},
		}},
		"a single family in the manifest retains the added one": {dual, []step{
			{"policy=PreferDualStack families=IPv6", "PreferDualStack IPv6,IPv4 new,new"},
			{"policy=PreferDualStack families=IPv6 label=a", "PreferDualStack IPv6,IPv4 kept,kept"},
			{"policy=SingleStack families=IPv6", "SingleStack IPv6 kept"},
		}},
		"a first family that is given later": {dual, []step{
			{"policy=PreferDualStack", "PreferDualStack IPv4,IPv6 new,new"},
			{"policy=PreferDualStack families=IPv4", `refused: spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be 'SingleStack' to release the secondary IP family`},
		}},
		"an address taken away needs a policy": {dual, []step{
			{"policy=RequireDualStack ip=10.96.0.1,fd00:96::1", "RequireDualStack IPv4,IPv6 10.96.0.1,fd00:96::1"},
			{"policy=RequireDualStack ip=10.96.0.1", `refused: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be 'SingleStack' to release the secondary cluster IP`},
		}},
		"one address given that is held leaves the other": {dual, []step{
			{"policy=RequireDualStack ip=10.96.0.1", "RequireDualStack IPv4,IPv6 10.96.0.1,new"},
			{"policy=RequireDualStack ip=10.96.0.1 label=a", "RequireDualStack IPv4,IPv6 kept,kept"},
		}},
		"the primary address never changes": {dual, []step{
			{"ip=10.96.0.1", "SingleStack IPv4 10.96.0.1"},
			{"ip=10.96.0.2", `refused: spec.clusterIPs[0]: Invalid value: ["10.96.0.2"]: may not change once set`},
			{"ip=10.96.0.1", "SingleStack IPv4 kept"},
			{"", "SingleStack IPv4 kept"},
		}},
		"the secondary address never changes": {dual, []step{
			{"policy=RequireDualStack ip=10.96.0.1,fd00:96::1", "RequireDualStack IPv4,IPv6 10.96.0.1,fd00:96::1"},
			{"policy=RequireDualStack ip=10.96.0.1,fd00:96::2", `refused: spec.clusterIPs[1]: Invalid value: ["10.96.0.1","fd00:96::2"]: may not change once set`},
		}},
		"address and family never change": {dual, []step{
			{"ip=10.96.0.1 families=IPv4", "SingleStack IPv4 10.96.0.1"},
			{"ip=fd00:96::1 families=IPv6", `refused: spec.clusterIPs[0]: Invalid value: ["fd00:96::1"]: may not change once set; spec.ipFamilies[0]: Invalid value: ["IPv6"]: may not change once set`},
		}},
		"the primary address never changes when a second is added": {dual, []step{
			{"ip=10.96.0.1", "SingleStack IPv4 10.96.0.1"},
			{"policy=RequireDualStack ip=fd00:96::1 families=IPv6", `refused: spec.clusterIPs[0]: Invalid value: ["fd00:96::1",""]: may not change once set; spec.ipFamilies[0]: Invalid value: ["fd00:96::1",""]: may not change once set`},
		}},
		"headless stays headless": {dual, []step{
			{"headless", "SingleStack IPv4 None"},
			{"", "SingleStack IPv4 None"},
			{"ip=10.96.0.1", `refused: spec.clusterIPs[0]: Invalid value: ["10.96.0.1"]: may not change once set`},
		}},
		"fields that the new type does not support may remain in the manifest": {dual, []step{
			{"type=NodePort ip=10.96.0.1 policy=SingleStack ports=80:30080", "SingleStack IPv4 10.96.0.1 30080"},
			{"external=example.com ip=10.96.0.1 policy=SingleStack ports=80:30080", ""},
			{"external=example.com ip=10.96.0.1 policy=SingleStack ports=80:30080 label=a", ""},
			{"external=example.com ip=10.96.0.1 policy=PreferDualStack", "refused: spec.clusterIPs: Forbidden: may not be set for ExternalName services; spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services"},
		}},
		"a Service never becomes headless": {dual, []step{
			{"ip=10.96.0.1", "SingleStack IPv4 10.96.0.1"},
			{"headless", `refused: spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`},
		}},
		"headless may change families": {dual, []step{
			{"headless families=IPv4", "SingleStack IPv4 None"},
			{"headless families=IPv6", "SingleStack IPv6 None"},
			{"headless policy=PreferDualStack families=IPv4,IPv6", "PreferDualStack IPv4,IPv6 None"},
			{"headless policy=SingleStack", "SingleStack IPv4 None"},
		}},
		"headless retains its policy when it gets a selector": {dual, []step{
			{"headless selectorless", "RequireDualStack IPv4,IPv6 None"},
			{"headless", "RequireDualStack IPv4,IPv6 None"},
		}},
		"a single-stack cluster refuses a selector for headless dual-stack": {single, []step{
			{"headless selectorless", "RequireDualStack IPv4,IPv6 None"},
			{"headless", `refused: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services; spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster`},
		}},
		"to an external name and back": {dual, []step{
			{"policy=PreferDualStack", "PreferDualStack IPv4,IPv6 new,new"},
			{"external=example.com", ""},
			{"families=IPv6", "SingleStack IPv6 new"},
		}},
		"an address in the manifest is released with the type": {dual, []step{
			{"ip=10.96.0.1", "SingleStack IPv4 10.96.0.1"},
			{"external=example.com ip=10.96.0.1", ""},
			{"ip=10.96.0.2", "SingleStack IPv4 10.96.0.2"},
		}},
		"a new address is refused for an external name": {dual, []step{
			{"ip=10.96.0.1", "SingleStack IPv4 10.96.0.1"},
			{"external=example.com ip=10.96.0.2", "refused: spec.clusterIPs: Forbidden: may not be set for ExternalName services"},
		}},
		"headless from an external name": {dual, []step{
			{"external=example.com", ""},
			{"headless", "SingleStack IPv4 None"},
		}},
		"ClusterIP to NodePort to LoadBalancer and back": {single, []step{
			{"", newSingle},
			{"type=NodePort", "SingleStack IPv4 kept new"},
			{"type=LoadBalancer", "SingleStack IPv4 kept kept"},
			{"type=NodePort", "SingleStack IPv4 kept kept"},
			{"", "SingleStack IPv4 kept"},
		}},
		"node ports in the manifest are released with the type": {single, []step{
			{"type=NodePort ports=80:30080", "SingleStack IPv4 new 30080"},
			{"ports=80:30080", "SingleStack IPv4 kept"},
			{"type=NodePort ports=80:30081", "SingleStack IPv4 kept 30081"},
			{"ports=80:30082", "refused: spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		}},
		"held node ports remain when allocation is disabled": {single, []step{
			{"type=LoadBalancer", "SingleStack IPv4 new new"},
			{"type=LoadBalancer nonodeports ports=a=80,b=81", "SingleStack IPv4 kept kept,-"},
			{"type=NodePort nonodeports ports=a=80,b=81", "SingleStack IPv4 kept kept,new"},
		}},
		"a node port changes": {single, []step{
			{"type=NodePort ports=80:30080", "SingleStack IPv4 new 30080"},
			{"type=NodePort ports=80:30081", "SingleStack IPv4 kept 30081"},
			{"type=NodePort", "SingleStack IPv4 kept kept"},
			{"type=NodePort ports=80:80", "refused: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"},
		}},
		"a node port remains with its port": {single, []step{
			{"type=NodePort ports=a=80", "SingleStack IPv4 new new"},
			{"type=NodePort ports=b=80,c=81", "SingleStack IPv4 kept kept,new"},
			{"type=NodePort ports=c=8081", "SingleStack IPv4 kept kept"},
		}},
		"a node port moves to another port": {single, []step{
			{"type=NodePort ports=a=80:30080", "SingleStack IPv4 new 30080"},
			{"type=NodePort ports=a=80,b=81:30080", "SingleStack IPv4 kept new,kept"},
		}},
		"two ports share a node port": {single, []step{
			{"type=NodePort ports=a=80", "SingleStack IPv4 new new"},
			{"type=NodePort ports=a=80:30080,b=81:30080", "refused: duplicate nodePort: {TCP 30080}"},
			{"type=NodePort ports=a=80:30080,b=81/UDP:30080", "SingleStack IPv4 kept 30080,30080"},
		}},
		"a port is added for the other protocol": {single, []step{
			{"type=NodePort ports=a=53/UDP:30053", "SingleStack IPv4 new 30053"},
			{"type=NodePort ports=a=53/UDP:30053,b=53/TCP", "SingleStack IPv4 kept kept,new"},
			{"type=NodePort ports=a=53/UDP:30053,b=53/TCP:30053", "SingleStack IPv4 kept kept,kept"},
		}},
		"health check is added and removed": {single, []step{
			{"type=LoadBalancer", "SingleStack IPv4 new new"},
			{"type=LoadBalancer local", "SingleStack IPv4 kept kept health=new"},
			{"type=LoadBalancer local label=a", "SingleStack IPv4 kept kept health=kept"},
			{"type=LoadBalancer local health=30001", "refused: spec.healthCheckNodePort: Forbidden: field is immutable"},
			{"type=LoadBalancer", "SingleStack IPv4 kept kept"},
			{"type=LoadBalancer local health=30001", "SingleStack IPv4 kept kept health=30001"},
			{"type=LoadBalancer local", "SingleStack IPv4 kept kept health=kept"},
			{"type=NodePort", "SingleStack IPv4 kept kept"},
		}},
	} {
		t.Run(name, func(t *testing.T) { runSteps(t, test.ranges, test.steps) })
	}
}
