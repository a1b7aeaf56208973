package connection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/proxy/plan"
)

// noEndpoints adds why no endpoint can be used.
func (t *try) noEndpoints() {
	field := fmt.Sprintf("spec.ports[%d].targetPort", t.port)
	findings := t.Linter.CheckService(t.service)
	for _, f := range findings {
		if f.Rule == lint.ServiceTargetPortMissing && f.Field == field {
			t.add(f.Rule, f.Fix, "targetPort %s: %s", t.service.Targets[t.port], f.Message)
			return
		}
	}
	if n := len(t.attempt.Endpoints); n > 0 {
		t.unready()
		return
	}
	found := false
	for _, f := range findings {
		switch f.Rule {
		case lint.ServiceSelectsNoPod, lint.ServiceNoEndpoints, lint.ServiceScaledToZero, lint.ServiceNoReadyEndpoint:
			found = true
			t.add(f.Rule, f.Fix, "%s: %s", f.Object, f.Message)
		}
	}
	if found {
		return
	}
	t.slicesDiffer()
}

// unready adds why the endpoints, of which there are some, are not ready.
func (t *try) unready() {
	e := t.attempt.Endpoints[0]
	what, cure := e.Address, "find out why it is not ready"
	if e.Pod != "" {
		what = "Pod " + e.Pod
		_, name, _ := strings.Cut(e.Pod, "/")
		cure = "find out why: kubectl describe pod " + name + " --namespace " + t.service.Namespace
		if p := t.View.Pod(cluster.Key{Namespace: t.service.Namespace, Name: name}); p != nil {
			what += t.Linter.Unready(p)
			if p.Deleting {
				cure = "wait for the Pod that replaces it: kubectl get pods --namespace " + t.service.Namespace
			}
		}
	}
	if !strings.Contains(what, ",") {
		what += " is " + e.WhyNot
	}
	t.add("no-ready-endpoint", cure, "no endpoint is ready: %s", what)
}

// slicesDiffer adds why EndpointSlices have nothing for the port or the family.
func (t *try) slicesDiffer() {
	of := t.View.SlicesOf(t.service.Key)
	var names []string
	family := cluster.FamilyOf(t.at.Addr)
	for _, s := range of {
		if s.AddressType != family {
			continue
		}
		for _, p := range s.Ports {
			if name := cmp.Or(p.Name, "one without a name"); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	switch {
	case len(names) > 0:
		t.add("slice-port", "give the port the same name and protocol in the Service and in its EndpointSlices",
			"no EndpointSlice of Service %s has its port %s; they have %s", t.service.Key, portName(t.service.Ports[t.port]),
			strings.Join(names, ", "))
	case slices.ContainsFunc(of, func(s *cluster.EndpointSlice) bool {
		return len(s.Endpoints) > 0 && s.AddressType != family
	}):
		t.add("no-family", "give the Pods addresses of both families, or the Service one family in spec.ipFamilies",
			"Service %s has no endpoint with an %s address", t.service.Key, family)
	case t.Linter.Observed:
		t.add(
			"no-endpoint-slice",
			"check that kube-controller-manager runs",
			"Service %s has no EndpointSlice with endpoints",
			t.service.Key,
		)
	default:
		t.add("no-endpoint-slice", "simulate the control plane (--simulate), or add an EndpointSlice to the manifests",
			"Service %s has no EndpointSlice with endpoints", t.service.Key)
	}
}

// noLocalEndpoints adds which nodes have endpoints, and returns what the client sees.
func (t *try) noLocalEndpoints() (outcome string) {
	field := "externalTrafficPolicy"
	if t.kind == plan.ClusterIP {
		field = "internalTrafficPolicy"
	}
	cure := "set " + field + " to Cluster, or run a Pod of the Service on each node"
	var nodes []string
	port, family := t.service.Ports[t.port], cluster.FamilyOf(t.at.Addr)
	for _, e := range plan.Endpoints(t.View, &t.proxy.node, t.service.Key, port, family) {
		if e.Cluster == "" && e.Node != "" && !slices.Contains(nodes, e.Node) {
			nodes = append(nodes, e.Node)
		}
	}
	slices.Sort(nodes)
	if len(nodes) > 0 {
		cure += "; nodes with endpoints: " + strings.Join(nodes, ", ")
	}
	for _, e := range t.attempt.Endpoints {
		if e.Node == t.proxy.node.Name && e.Node != "" {
			t.add("no-local-endpoint", cure, "%s is Local and no endpoint on node %s is ready: %s is %s", field, e.Node,
				cmp.Or(e.Pod, e.Address), e.WhyNot)
			return TimedOut
		}
	}
	if t.proxy.node.Name == "" {
		t.add("no-node", "name the node: --node NAME", "%s is Local, and the node of the connection is not known", field)
		return NotKnown
	}
	t.add("no-local-endpoint", cure, "%s is Local and no endpoint is on node %s", field, t.proxy.node.Name)
	return TimedOut
}
