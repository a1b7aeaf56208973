package endpointslices

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
)

// begin makes the first slices of a Service whose endpoints are all alike: the
// library makes those for one of its Pods, and the other endpoints are put beside
// that one, as many to a slice as may be. It is false when that can't be, and then
// nothing was done.
func (w *worker) begin(j *job, pods []*cluster.Pod) bool {
	for _, p := range pods {
		if !w.isOnNode(j, p) {
			return false
		}
	}
	i := slices.IndexFunc(pods, func(p *cluster.Pod) bool { return inSlices(p) && hasFamilies(p, j.now.Spec.Families) })
	if i < 0 {
		return false
	}
	w.reconcile(j, nil, pods[i:i+1])
	for _, s := range slices.Clone(j.slices) {
		w.fill(j, s, pods)
	}
	return true
}

// hasFamilies tells whether a Pod has an address of each family.
func hasFamilies(p *cluster.Pod, families []cluster.AddressType) bool {
	for _, f := range families {
		if !slices.ContainsFunc(p.IPs, func(ip netip.Addr) bool { return cluster.FamilyOf(ip) == f }) {
			return false
		}
	}
	return true
}

// fill gives a slice the endpoints of all Pods that its family has, and adds
// others like it where there are more than it may have.
func (w *worker) fill(j *job, s *discoveryv1.EndpointSlice, pods []*cluster.Pod) {
	of := familyChange{worker: w, job: j, family: cluster.AddressType(s.AddressType)}
	all := make([]discoveryv1.Endpoint, 0, len(pods))
	for _, p := range pods {
		if !inSlices(p) {
			continue
		}
		if e, ok := of.endpoint(p); ok {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, compareEndpoints)
	most := w.compiler.cfg.MaxEndpoints
	s.Endpoints = all[:min(len(all), most):min(len(all), most)]
	for rest := all[len(s.Endpoints):]; len(rest) > 0; {
		n := min(len(rest), most)
		another := *s
		another.Endpoints, rest = rest[:n:n], rest[n:]
		j.slices = append(j.slices, &another)
	}
}
