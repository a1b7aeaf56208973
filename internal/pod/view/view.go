// Package view computes what the page for operators shows of a cluster, as values for JSON: an
// overview, a search, findings, and the views of a Service, a Pod, a policy and Gateways. Names are what the zones
// answer, endpoints what the service proxy makes of them, policies what package semantics says,
// routes what a gateway makes of them, and findings those of package lint; nothing is judged here
// again.
//
//	cluster.View ─► search.go, overview.go
//	        │   ┌─ zones: names.go
//	        └───┼─ proxy/plan, EndpointSlices: endpoint.go
//	            ├─ policy/semantics: policy.go      ─► service.go, pod.go, networkpolicy.go
//	            ├─ pod/lint: finding.go
//	            └─ pod/request: route.go            ─► gateway.go
//
// Lists are cut at a length that clients can show, and say how much is left out.
package view

import (
	"fmt"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/policy/semantics"
)

// The maximum lengths of lists.
const (
	mostEndpoints = 500
	mostRecords   = 100 // of a name and a type
	mostNames     = 100
	mostPolicies  = 200
	mostRoutes    = 200
	mostFindings  = 100
	mostServices  = 200 // that select a Pod
	mostNodes     = 500
	mostGateways  = 500
	mostListeners = 64   // of a Gateway
	mostListed    = 1000 // routes of all Gateways
	mostPods      = 200  // that a policy applies to
	mostOfPolicy  = 64   // rules of a policy, and peers and ports of a rule
	// mostJudged is how many Pods of a Service are asked for their policies.
	mostJudged = 100
)

// Model is one state of the cluster with what is compiled from it. Its methods are called within
// the View.
type Model struct {
	View   *cluster.View
	Linter *lint.Linter
	// Gateway returns what a gateway makes of the model.
	Gateway func() *request.World
	// Ask returns the records that the cluster's DNS answers with for a name.
	Ask func(name string, t dnswire.Type) []dnswire.Record
	// Whole: objects have all fields of the model. Otherwise they have what the process needs.
	Whole bool
	// Cure is the setting that has a process read more.
	Cure string
	// ResolvConf returns the resolv.conf of a Pod.
	ResolvConf func(s *dnsconfig.Subject) dnsconfig.Resolution
	// Found returns what portolan check finds in all objects, in order. The caller does not change it.
	Found func() []lint.Finding

	policies *semantics.Set
}

// Involved are the clients and the subjects that failures are wanted of.
type Involved struct {
	// Pods are NAMESPACE/NAME, Addresses are those of clients or destinations, and Names are names that
	// are asked for, with a dot at the end.
	Pods, Addresses, Names []string
}

// NotRead is a kind that a view lacks.
type NotRead struct {
	Kind string `json:"kind"`
	// Why says which setting has it read.
	Why string `json:"why"`
}

// More is how many elements are left out of lists, by their keys in JSON.
type More map[string]int

// cut returns a list without what is after its maximum length, and counts that.
func cut[T any](m *More, name string, list []T, most int) []T {
	if list == nil {
		return []T{}
	}
	if len(list) <= most {
		return list
	}
	if *m == nil {
		*m = make(More)
	}
	(*m)[name] += len(list) - most
	return list[:most]
}

// lacks returns which of the kinds are not read, or not with all fields.
func (m *Model) lacks(kinds ...cluster.Kind) (all []NotRead) {
	for _, k := range kinds {
		if !m.View.Loaded(k) {
			all = append(all, m.notRead(k))
		}
	}
	return all
}

// notRead says that a kind is not read.
func (m *Model) notRead(k cluster.Kind) NotRead {
	return NotRead{k.String(), fmt.Sprintf("%s are not read here; %s", k.Plural(), m.Cure)}
}

// partly returns what is not read of kinds whose objects have some fields only.
func (m *Model) partly(what string, kinds ...cluster.Kind) (all []NotRead) {
	if m.Whole {
		return nil
	}
	for _, k := range kinds {
		if m.View.Loaded(k) {
			all = append(all, NotRead{k.String(), fmt.Sprintf("%s of %s are not read here; %s", what, k.Plural(), m.Cure)})
		}
	}
	return all
}

// reads reports whether objects of the kinds are read with all fields.
func (m *Model) reads(kinds ...cluster.Kind) bool { return m.Whole && m.View.Loaded(kinds...) }

// unknown reports whether a Pod or a node that does not appear to be ready may be so: a process that needs no
// conditions does not keep them.
func (m *Model) unknown(ready bool) bool { return !ready && !m.Whole }

// set returns the policies.
func (m *Model) set() *semantics.Set {
	if m.policies == nil {
		m.policies = semantics.NewSet(m.View)
	}
	return m.policies
}
