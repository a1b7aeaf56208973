package endpointslices

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/internal/cluster"
)

// The library looks at all endpoints of a Service at each change, and takes long
// for each. Here is a shorter way for the plainest changes, which are nearly all:
// some Pods of a Service changed and nothing else, all its endpoints have the
// same ports, and there are no hints. It does what the library does (k8s.io/
// endpointslice, Reconciler.reconcileByPortMapping): endpoints are changed where
// they are; new ones go into the slices that were changed, the fullest first, and
// the rest into the one other slice that is fullest with them. What needs a new
// slice, or leaves a family without any endpoint, is left to the library, but for
// the first slices of a Service, see worker.begin.

// plainness says that the endpoints of a Service all have the same ports, and no
// hints.
type plainness struct {
	// named is set where the Service's ports depend on these of its Pods.
	named    bool
	podPorts []cluster.Port
}

// plainnessOf is that of a Service with these Pods, nil when there is none.
func plainnessOf(s *cluster.Service, pods []*cluster.Pod) *plainness {
	if s.Spec == nil || len(s.Spec.Families) == 0 || s.Spec.TrafficDistribution != "" || allotted(s) {
		return nil
	}
	if numericTargets(s) {
		return &plainness{}
	}
	i := slices.IndexFunc(pods, inSlices)
	if i < 0 {
		return nil
	}
	same := &plainness{named: true, podPorts: podPorts(pods[i])}
	for _, p := range pods[i:] {
		if !same.fits(p) {
			return nil
		}
	}
	return same
}

// fits tells whether the endpoint of a Pod, if it has one, is like the others.
func (s *plainness) fits(p *cluster.Pod) bool {
	return !s.named || !inSlices(p) || slices.Equal(podPorts(p), s.podPorts)
}

func podPorts(p *cluster.Pod) []cluster.Port {
	if p.Spec == nil {
		return nil
	}
	return p.Spec.Ports
}

// isOnNode tells whether a Pod's endpoint is not left out for its Node.
func (w *worker) isOnNode(j *job, p *cluster.Pod) bool {
	return !inSlices(p) || j.now.PublishNotReady || w.compiler.nodes.known(p.Node)
}

// change does a job the short way. It is false when that can't be, and then
// nothing was done.
func (w *worker) change(j *job) bool {
	if j.whole || !j.intact || j.old.plain == nil || j.now != j.old.service {
		return false
	}
	for _, ch := range j.pods {
		if ch.New != nil && !(w.isOnNode(j, ch.New) && j.old.plain.fits(ch.New)) {
			return false
		}
	}
	for i, ch := range j.pods {
		if ch.New != nil {
			j.pods[i].New = w.sound(j, ch.New)
		}
	}
	slices.SortFunc(j.pods, func(a, b PodChange) int { return cmp.Compare(a.name(), b.name()) })
	j.slices = slices.Clone(j.old.slices)
	j.written = nil
	for _, family := range j.now.Spec.Families {
		f := familyChange{worker: w, job: j, family: family}
		if !f.do() {
			return false
		}
	}
	for _, s := range j.written {
		if len(s.Endpoints) > 0 {
			continue
		}
		j.slices = slices.DeleteFunc(j.slices, func(other *discoveryv1.EndpointSlice) bool { return other == s })
	}
	j.written = slices.DeleteFunc(j.written, func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) == 0 })
	j.keepRefused()
	j.plain = j.old.plain
	return true
}

// name is the Pod's.
func (ch PodChange) name() string {
	if ch.New != nil {
		return ch.New.Name
	}
	return ch.Old.Name
}

// changed tells whether a Pod of that name is among those that a job is for, which
// are in order.
func (j *job) changed(pod string) bool {
	_, found := slices.BinarySearchFunc(j.pods, pod, func(ch PodChange, pod string) int { return cmp.Compare(ch.name(), pod) })
	return found
}

// convertChanged makes the model's slices of those that were written the short way:
// what did not change is as it was, for to read addresses takes long.
func (w *worker) convertChanged(j *job) {
	for _, s := range j.written {
		i := slices.IndexFunc(j.stored, func(m *cluster.EndpointSlice) bool { return m.Name == s.Name })
		m := *j.stored[i]
		m.Endpoints = make([]cluster.Endpoint, 0, len(s.Endpoints))
		before := j.stored[i].Endpoints
		for k := range s.Endpoints {
			pod := s.Endpoints[k].TargetRef.Name
			for len(before) > 0 && before[0].Pod < pod {
				before = before[1:]
			}
			if len(before) == 0 || before[0].Pod != pod || j.changed(pod) {
				m.Endpoints = appendModel(m.Endpoints, &s.Endpoints[k])
				continue
			}
			for len(before) > 0 && before[0].Pod == pod {
				m.Endpoints, before = append(m.Endpoints, before[0]), before[1:]
			}
		}
		j.model = append(j.model, &m)
	}
}

// appendModel appends what the model has of an endpoint that was made here.
func appendModel(all []cluster.Endpoint, e *discoveryv1.Endpoint) []cluster.Endpoint {
	endpoint := cluster.Endpoint{Pod: e.TargetRef.Name, Ready: *e.Conditions.Ready, Terminating: *e.Conditions.Terminating}
	if e.Hostname != nil {
		endpoint.Hostname = *e.Hostname
	}
	for _, text := range e.Addresses {
		endpoint.Addr = netip.MustParseAddr(text)
		all = append(all, endpoint)
	}
	return all
}

// inSlices tells whether a Pod has endpoints: it has addresses, and has not
// ended (EndpointSlices, "Conditions").
func inSlices(p *cluster.Pod) bool { return !p.Finished && len(p.IPs) > 0 }

// familyChange is what a job does to the slices of one family.
type familyChange struct {
	*worker
	job    *job
	family cluster.AddressType
	fresh  []discoveryv1.Endpoint // that have no place yet
}

func (c *familyChange) do() bool {
	before := c.count()
	for _, ch := range c.job.pods {
		c.pod(ch)
	}
	after := c.count() + len(c.fresh)
	if (before == 0) != (after == 0) {
		return false // a slice without endpoints comes or goes
	}
	slices.SortFunc(c.fresh, compareEndpoints)
	return c.fill()
}

// count is how many endpoints the family has.
func (c *familyChange) count() (n int) {
	for _, s := range c.job.slices {
		if s.AddressType == addressType(c.family) {
			n += len(s.Endpoints)
		}
	}
	return n
}

// pod takes the endpoint of a Pod out of its slice, or changes it there, or makes
// it a fresh one.
func (c *familyChange) pod(ch PodChange) {
	var want discoveryv1.Endpoint
	wanted := false
	if ch.New != nil && inSlices(ch.New) {
		want, wanted = c.endpoint(ch.New)
	}
	i, at := -1, 0
	if ch.Old != nil {
		i, at = c.place(ch.Old.Name)
	}
	switch {
	case i >= 0 && wanted && sameEndpoint(&want, &c.job.slices[i].Endpoints[at]):
		if !equalEndpoints(&want, &c.job.slices[i].Endpoints[at]) {
			c.write(i).Endpoints[at] = want
		}
		return
	case i >= 0:
		s := c.write(i)
		s.Endpoints = slices.Delete(s.Endpoints, at, at+1)
	}
	if wanted {
		c.fresh = append(c.fresh, want)
	}
}

// place is where the endpoint of a Pod is: in which slice, -1 for none, and at
// which place in it.
func (c *familyChange) place(pod string) (slice, at int) {
	for i, s := range c.job.slices {
		if s.AddressType == addressType(c.family) {
			if at, ok := find(s.Endpoints, pod); ok {
				return i, at
			}
		}
	}
	return -1, 0
}

// write makes slice number i one that may be changed.
func (c *familyChange) write(i int) *discoveryv1.EndpointSlice {
	s := c.job.slices[i]
	if slices.Contains(c.job.written, s) {
		return s
	}
	changed := *s
	changed.Endpoints = slices.Clone(s.Endpoints)
	c.job.slices[i] = &changed
	c.job.written = append(c.job.written, &changed)
	return &changed
}

// fill gives fresh endpoints places in slices that are there.
func (c *familyChange) fill() bool {
	var written, other []int
	for i, s := range c.job.slices {
		switch {
		case s.AddressType != addressType(c.family):
		case !slices.Contains(c.job.written, s):
			other = append(other, i)
		case len(s.Endpoints) > 0:
			written = append(written, i)
		}
	}
	slices.SortStableFunc(written, func(a, b int) int {
		return cmp.Compare(len(c.job.slices[b].Endpoints), len(c.job.slices[a].Endpoints))
	})
	for _, i := range written {
		c.add(i, min(len(c.fresh), c.room(i)))
	}
	if len(c.fresh) == 0 {
		return true
	}
	best := -1
	for _, i := range other {
		if c.room(i) >= len(c.fresh) && (best < 0 || c.room(i) < c.room(best)) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	c.add(best, len(c.fresh))
	return true
}

// room is how many endpoints fit into slice number i.
func (c *familyChange) room(i int) int {
	return c.compiler.cfg.MaxEndpoints - len(c.job.slices[i].Endpoints)
}

// add moves n fresh endpoints into slice number i.
func (c *familyChange) add(i, n int) {
	if n <= 0 {
		return
	}
	s := c.write(i)
	for _, e := range c.fresh[:n] {
		at, _ := find(s.Endpoints, e.TargetRef.Name)
		s.Endpoints = slices.Insert(s.Endpoints, at, e)
	}
	c.fresh = c.fresh[n:]
}

// endpoint is that of a Pod; false when it has no address of the family.
func (c *familyChange) endpoint(p *cluster.Pod) (e discoveryv1.Endpoint, ok bool) {
	for _, ip := range p.IPs {
		if cluster.FamilyOf(ip) == c.family {
			e.Addresses = append(e.Addresses, ip.String())
		}
	}
	if len(e.Addresses) == 0 {
		return e, false
	}
	slices.Sort(e.Addresses)
	e.Conditions = discoveryv1.EndpointConditions{
		Ready:       c.truth(c.job.now.PublishNotReady || p.Ready && !p.Deleting),
		Serving:     c.truth(p.Ready),
		Terminating: c.truth(p.Deleting),
	}
	e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	if p.Node != "" {
		e.NodeName, e.Zone = c.nodeName(&p.Node), c.compiler.nodes.zone(p.Node)
	}
	if endpointHostname(c.job.key, p) != "" {
		e.Hostname = &p.Spec.Hostname
	}
	return e, true
}

// sameEndpoint tells whether one endpoint is the other in another state: it has
// the same addresses and hostname, and is of the same Pod.
func sameEndpoint(a, b *discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) && equalText(a.Hostname, b.Hostname)
}

// equalEndpoints tells whether endpoints that are the same are in the same state.
func equalEndpoints(a, b *discoveryv1.Endpoint) bool {
	return *a.Conditions.Ready == *b.Conditions.Ready && *a.Conditions.Serving == *b.Conditions.Serving &&
		*a.Conditions.Terminating == *b.Conditions.Terminating &&
		equalText(a.NodeName, b.NodeName) && equalText(a.Zone, b.Zone) && a.TargetRef.UID == b.TargetRef.UID
}

// equalText takes nil for the empty text, which no hostname or name of a Node is.
func equalText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func addressType(f cluster.AddressType) discoveryv1.AddressType { return discoveryv1.AddressType(f) }
