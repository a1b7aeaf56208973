package lint

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/support/suggest"
)

// apiServer is the Service whose endpoints the API server manages itself.
var apiServer = cluster.Key{Namespace: "default", Name: "kubernetes"}

// CheckService checks a Service, its endpoints and the Pods that it selects.
func (c *Linter) CheckService(s *cluster.Service) []Finding {
	j := c.reporterFor(cluster.KindService, s.Key)
	if s.ExternalName != "" {
		j.external(s)
		return j.found()
	}
	b := j.backendsOf(s)
	switch {
	case len(s.Selector) == 0:
		j.endpointsWithoutSelector(s, &b)
	case c.podsLoaded():
		j.selectedPods(s, &b)
	}
	j.readiness(s, &b)
	j.families(s, &b)
	j.portNames(s)
	j.targets(s, &b)
	j.sharedAddresses(s)
	j.sharedExternalIPs(s)
	j.nodeAddresses(s)
	j.sourceRanges(s)
	j.localPolicies(s)
	j.serviceAnnotations(s)
	j.endpointHostnames(s)
	j.hiddenServices(s)
	if s.Key == c.DNSService {
		j.dnsServicePorts(s)
		j.dnsServiceEndpoints()
	}
	return j.found()
}

// backends has the EndpointSlices, endpoints and Pods of a Service.
type backends struct {
	slices []*cluster.EndpointSlice
	// endpoints has the endpoints of the slices by address; a ready one wins.
	endpoints map[netip.Addr]*cluster.Endpoint
	// ready has the addresses that get records.
	ready []netip.Addr
	// selected has the Pods and templates that the Service selects.
	selected []*dnsconfig.Subject
}

func (j *reporter) backendsOf(s *cluster.Service) backends {
	b := backends{
		slices:    j.View.SlicesOf(s.Key),
		endpoints: make(map[netip.Addr]*cluster.Endpoint),
		selected:  j.indexed().selected(s),
	}
	for _, slice := range b.slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if known := b.endpoints[e.Addr]; known == nil || e.Ready && !known.Ready {
				b.endpoints[e.Addr] = e
			}
		}
	}
	for addr, e := range b.endpoints {
		if e.Ready || s.PublishNotReady {
			b.ready = append(b.ready, addr)
		}
	}
	return b
}

// endpointsWithoutSelector checks that a Service without a selector has endpoints,
// because the control plane creates none for it.
func (j *reporter) endpointsWithoutSelector(s *cluster.Service, b *backends) {
	if !j.loaded(cluster.KindEndpointSlice) || s.Key == apiServer || len(b.endpoints) > 0 {
		return
	}
	if slices.ContainsFunc(b.slices, func(e *cluster.EndpointSlice) bool { return e.AddressType == cluster.FQDN }) {
		return // endpointslice-fqdn reports it
	}
	j.add(ServiceNoEndpoints, "spec",
		"add a selector, or an EndpointSlice with the label kubernetes.io/service-name: "+s.Name,
		"it has no selector, and no EndpointSlice with endpoints: %s", j.withoutEndpoints(s))
}

// withoutEndpoints returns what clients see of a Service without endpoints.
func (c *Linter) withoutEndpoints(s *cluster.Service) string {
	text := "its name resolves, but nothing answers at its address"
	switch {
	case s.Key == c.DNSService:
		return "no name resolves"
	case s.Headless:
		text = "its name does not exist"
	case len(s.ClusterIPs) == 0:
		text = "nothing will answer at its cluster IP" // the cluster IP is not assigned yet
	}
	return text + c.requestsFail(s.Key)
}

// requestsFail says which Ingresses and routes send requests to a Service without endpoints; empty if none
// does.
func (c *Linter) requestsFail(key cluster.Key) string {
	var names []string
	add := func(ref cluster.Ref) {
		if name := ref.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, f := range cluster.IngressesByService.Get(c.View, key) {
		add(f.Ref())
	}
	of := cluster.ObjectRef{Kind: cluster.KindService.String(), Namespace: key.Namespace, Name: key.Name}
	for r := range cluster.RoutesByBackend.Get(c.View, of) {
		add(r.Ref())
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	text := strings.Join(names, " and ")
	if len(names) > 2 {
		text = firstFew(names)
	}
	return ", and requests of " + text + " are answered with 503"
}

// selectedPods checks that a Service selects Pods, or workloads with replicas.
func (j *reporter) selectedPods(s *cluster.Service, b *backends) {
	if len(b.endpoints) > 0 {
		return // its Pods are not in the model
	}
	if len(b.selected) == 0 {
		if p := j.indexed().selectedFinished(s); p != nil {
			j.addAs(Warning, ServiceSelectsNoPod, "spec.selector", "start its Pods again, as a Deployment or StatefulSet would",
				"it selects no Pod that runs: %s has finished: %s", p, j.withoutEndpoints(s))
			return
		}
		hint, fix, typo := j.nearMiss(s)
		severity := Warning // the workload may not have been read, or add the label at run time
		if typo {
			severity = Error
		}
		if hint == "" && !j.indexed().occupied[s.Namespace] {
			hint = fmt.Sprintf(", and no Pod or workload of namespace %s is known", s.Namespace)
		}
		j.addAs(severity, ServiceSelectsNoPod, "spec.selector", fix, "it selects no Pod%s: %s", hint, j.withoutEndpoints(s))
		return
	}
	for _, p := range b.selected {
		if p.Workload == nil || p.Workload.Replicas > 0 {
			return
		}
	}
	j.add(ServiceScaledToZero, "spec.selector", "scale "+b.selected[0].String()+" to 1 replica or more",
		"every workload that it selects has 0 replicas, such as %s: %s", b.selected[0], j.withoutEndpoints(s))
}

// nearMiss looks for a Pod or template whose labels almost match the selector of a
// Service. It returns what differs, the cure, and whether the difference looks like a
// typo and not like a label that Pods get while they run.
func (j *reporter) nearMiss(s *cluster.Service) (hint, fix string, typo bool) {
	x := j.indexed()
	fix = "set spec.selector to labels that its Pods have"
	for _, label := range slices.Sorted(maps.Keys(s.Selector)) {
		moved := &cluster.Service{Selector: s.Selector}
		for _, p := range x.byLabel[labelKey{"", label, s.Selector[label]}] {
			if moved.Namespace = p.Namespace; moved.SelectsLabels(p.Namespace, p.Labels) {
				hint = fmt.Sprintf(", but would select %s in namespace %s", p, p.Namespace)
				return hint, "move the Service to the namespace of the Pods", true
			}
		}
	}
	if p, label := x.allButOne(s); p != nil {
		wanted := s.Selector[label]
		if value, ok := p.Labels[label]; ok {
			hint = fmt.Sprintf(": %s has %s=%s, and the selector has %s", p, label, value, wanted)
			fix = "set spec.selector to " + label + "=" + value + ", or the label to " + wanted
			return hint, fix, suggest.Closest(wanted, []string{value}) != ""
		}
		hint = fmt.Sprintf(": %s has all labels of the selector but %s=%s", p, label, wanted)
		return hint, "remove " + label + " from spec.selector, or add it to the Pods", false
	}
	for _, label := range slices.Sorted(maps.Keys(s.Selector)) {
		value := s.Selector[label]
		if near := suggest.Closest(value, x.values[valueKey{s.Namespace, label}]); near != "" {
			p := x.byLabel[labelKey{s.Namespace, label, near}][0]
			hint = fmt.Sprintf(": %s has %s=%s, and the selector has %s", p, label, near, value)
			return hint, "set spec.selector to " + label + "=" + near + ", or the label to " + value, true
		}
		if with := x.byValue[valueKey{s.Namespace, value}]; len(with) > 0 {
			other := labelOf(with[0], value)
			hint = fmt.Sprintf(": %s has %s=%s, and the selector has %s=%s", with[0], other, value, label, value)
			return hint, "set spec.selector to " + other + "=" + value, true
		}
	}
	return "", fix, false
}

// allButOne returns a Pod or template that has all labels of the selector but one,
// and the name of that label.
func (x *index) allButOne(s *cluster.Service) (*dnsconfig.Subject, string) {
	if len(s.Selector) < 2 {
		return nil, ""
	}
	for _, label := range slices.Sorted(maps.Keys(s.Selector)) {
		with := x.byLabel[labelKey{s.Namespace, label, s.Selector[label]}]
		for _, p := range with[:min(len(with), mostHints)] {
			missed := missing(s.Selector, p.Labels)
			if len(missed) == 1 {
				return p, missed[0]
			}
		}
	}
	return nil, ""
}

// missing returns the names of a selector's labels that do not match labels, sorted.
func missing(selector, labels map[string]string) (missed []string) {
	for label, value := range selector {
		if got, ok := labels[label]; !ok || got != value {
			missed = append(missed, label)
		}
	}
	slices.Sort(missed)
	return missed
}

// labelOf returns the name of a Subject's first label with that value.
func labelOf(p *dnsconfig.Subject, value string) string {
	for _, label := range slices.Sorted(maps.Keys(p.Labels)) {
		if p.Labels[label] == value {
			return label
		}
	}
	return ""
}

// readiness checks that a Service has a ready endpoint.
func (j *reporter) readiness(s *cluster.Service, b *backends) {
	if !j.loaded(cluster.KindEndpointSlice) || len(b.ready) > 0 {
		return
	}
	if len(b.endpoints) > 0 {
		why, fix := j.unreadyEndpoint(b)
		what := "which is not ready"
		if n := len(b.endpoints); n > 1 {
			what = "none of them ready"
		}
		j.add(ServiceNoReadyEndpoint, "", fix, "it has %s, %s%s: %s", counted(len(b.endpoints), "endpoint"), what, why,
			j.withoutEndpoints(s))
		return
	}
	if len(b.slices) == 0 && !j.Observed {
		return // the control plane has not reconciled the Service yet
	}
	j.unreadySelected(s, b)
}

// unreadySelected reports why none of the Pods that a Service selects is an endpoint.
func (j *reporter) unreadySelected(s *cluster.Service, b *backends) {
	for _, p := range b.selected {
		if p.Pod != nil {
			why, fix := unready(p.Pod)
			if why == "" && lacksTargets(s, p) && s.Key != j.DNSService {
				continue // service-target-port-missing reports it; of the cluster DNS, that no name resolves comes first
			}
			j.add(ServiceNoReadyEndpoint, "", fix, "it has no endpoint, though it selects %s%s: %s", p, why,
				j.withoutEndpoints(s))
			return
		}
	}
	for _, p := range b.selected {
		if runsAlways(p.Kind) && p.Workload.Replicas > 0 && j.podsLoaded() {
			j.add(ServiceNoReadyEndpoint, "", fmt.Sprintf("find out why there is no Pod: kubectl describe %s %s --namespace %s",
				strings.ToLower(p.Kind.String()), p.Name, p.Namespace),
				"it has no endpoint, though it selects %s, which has no Pod: %s", p, j.withoutEndpoints(s))
			return
		}
	}
}

// lacksTargets reports whether each port of a Service has a targetPort that is a name, and no container of a Pod has a
// port of that name: the Pod is no endpoint of the Service even if it is ready.
func lacksTargets(s *cluster.Service, p *dnsconfig.Subject) bool {
	if p.Spec == nil {
		return false
	}
	for i, port := range s.Ports {
		if i >= len(s.Targets) || s.Targets[i] == "" {
			return false
		}
		if _, err := strconv.ParseUint(s.Targets[i], 10, 16); err == nil {
			return false
		}
		if slices.ContainsFunc(p.Spec.Ports, func(own cluster.Port) bool {
			return own.Name == s.Targets[i] && own.Protocol == port.Protocol
		}) {
			return false
		}
	}
	return len(s.Ports) > 0
}

// runsAlways reports whether a kind of workload has Pods at all times.
func runsAlways(k cluster.Kind) bool {
	return k == cluster.KindDeployment || k == cluster.KindStatefulSet || k == cluster.KindDaemonSet
}

// unreadyEndpoint returns why one of the endpoints is not ready, or "" if it is not
// known, and the cure.
func (j *reporter) unreadyEndpoint(b *backends) (why, fix string) {
	addrs := slices.SortedFunc(maps.Keys(b.endpoints), func(a, c netip.Addr) int { return a.Compare(c) })
	for _, addr := range addrs {
		e := b.endpoints[addr]
		for _, slice := range b.slices[:1] {
			if p := j.View.Pod(cluster.Key{Namespace: slice.Namespace, Name: e.Pod}); e.Pod != "" && p != nil {
				if why, fix := unready(p); why != "" {
					return " (pod " + p.String() + why + ")", fix
				}
			}
		}
		if e.Terminating {
			return " (" + addr.String() + " is terminating)", "wait for the Pods that replace the terminating ones"
		}
	}
	return "", "find out why the Pods are not ready, or set spec.publishNotReadyAddresses if clients must find them before"
}

// conditionOrder has the Pod conditions in the order in which the kubelet and the
// scheduler set them: an earlier one that is False explains the later ones.
var conditionOrder = []string{"PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady"}

// unready returns why a Pod is not ready, as a clause to append to its name, or "" if
// its conditions do not tell, and the cure.
func unready(p *cluster.Pod) (why, fix string) {
	fix = "find out why the Pod is not ready: kubectl describe pod " + p.Name + " --namespace " + p.Namespace
	if p.Deleting {
		return ", which is terminating", "wait for the Pod that replaces it"
	}
	if len(p.Unmet) == 0 {
		return "", fix
	}
	c := slices.MinFunc(p.Unmet,
		func(a, b cluster.Condition) int { return cmp.Compare(conditionRank(a.Type), conditionRank(b.Type)) })
	because := strings.Join(slices.DeleteFunc([]string{c.Reason, c.Message}, func(s string) bool { return s == "" }), ": ")
	if because != "" {
		because = ", " + because
	}
	return fmt.Sprintf(", whose condition %s is %s%s", c.Type, c.Status, because), fix
}

// conditionRank orders conditions by conditionOrder, then readiness gates, then Ready,
// which depends on them.
func conditionRank(condition string) int {
	switch i := slices.Index(conditionOrder, condition); {
	case i >= 0:
		return i
	case condition == "Ready":
		return len(conditionOrder) + 1
	}
	return len(conditionOrder)
}

// families checks that each family of the cluster IPs has a ready endpoint.
func (j *reporter) families(s *cluster.Service, b *backends) {
	if len(s.ClusterIPs) < 2 || len(b.ready) == 0 {
		return
	}
	for i, addr := range s.ClusterIPs {
		if !slices.ContainsFunc(b.ready, func(e netip.Addr) bool { return e.Is4() == addr.Is4() }) {
			j.add(ServiceFamilyNoEndpoint, fmt.Sprintf("spec.clusterIPs[%d]", i),
				"give the Pods addresses of both families, or the Service one family in spec.ipFamilies",
				"it has the %s cluster IP %s, and no ready endpoint of that family: connections of clients that try it first fail",
				cluster.FamilyOf(addr), addr)
		}
	}
}

// portNames checks that ports have unique names.
func (j *reporter) portNames(s *cluster.Service) {
	names := make(map[string]int)
	for i, p := range s.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		first, twice := names[p.Name]
		switch {
		case p.Name == "" && len(s.Ports) > 1:
			j.add(ServicePortNames, field, "give each port a name",
				"port %d has no name, and the Service has %d ports: the API server refuses it", p.Number, len(s.Ports))
		case p.Name == "":
			j.add(ServicePortUnnamed, field, "give the port a name, such as http",
				"port %d has no name, so there is no SRV record _NAME._%s.%s.%s.svc.%s", p.Number,
				strings.ToLower(string(p.Protocol)), s.Name, s.Namespace, j.domain())
		case twice:
			j.add(ServicePortNames, field+".name", "give each port a unique name",
				"spec.ports[%d] has the name %s, too: the API server refuses it", first, p.Name)
		default:
			names[p.Name] = i
		}
	}
}

// domain returns the cluster domain of the Pods' search lists.
func (c *Linter) domain() string {
	if len(c.Domains) == 0 {
		return "cluster.local"
	}
	return c.Domains[0]
}

// targets checks that target ports are ports of the selected Pods.
func (j *reporter) targets(s *cluster.Service, b *backends) {
	var with []*dnsconfig.Subject
	for _, p := range b.selected {
		if j.podsLoaded() && (p.Pod == nil || p.Pod.Spec != nil) {
			with = append(with, p)
		}
	}
	for i, p := range s.Ports {
		target := strconv.Itoa(int(p.Number))
		if i < len(s.Targets) && s.Targets[i] != "" {
			target = s.Targets[i]
		}
		field := fmt.Sprintf("spec.ports[%d].targetPort", i)
		number, err := strconv.ParseUint(target, 10, 16)
		if err != nil {
			if len(with) == 0 {
				continue
			}
			if number = uint64(j.namedTarget(with, field, target, p.Protocol)); number == 0 {
				continue
			}
		} else {
			j.unlisted(with, field, cluster.Port{Protocol: p.Protocol, Number: uint16(number)})
		}
		j.translated(s, field, p, uint16(number))
	}
}

// namedTarget returns the number of the container port of that name, or 0 if no Pod
// has one.
func (j *reporter) namedTarget(with []*dnsconfig.Subject, field, target string, protocol cluster.Protocol) uint16 {
	var names []string
	other := cluster.Protocol("")
	for _, p := range with {
		for _, own := range p.Spec.Ports {
			switch {
			case own.Name == target && own.Protocol == protocol:
				return own.Number
			case own.Name == target:
				other = own.Protocol
			case own.Name != "" && own.Protocol == protocol && len(names) < mostHints && !slices.Contains(names, own.Name):
				names = append(names, own.Name)
			}
		}
	}
	slices.Sort(names)
	why, fix := "; none of their ports has a name", "name the container's port "+target+", or set targetPort to its number"
	switch near := suggest.Closest(target, names); {
	case other != "":
		why = fmt.Sprintf(": the port of that name has protocol %s, not %s", other, protocol)
		fix = "use the same protocol in the Service and in the container"
	case near != "":
		why, fix = didYouMean(near), "set targetPort to "+near
	case len(names) > 0:
		why, fix = "; they have "+firstFew(names), "set targetPort to one of them, or to a number"
	}
	pods := with[0].String()
	if more := len(with) - 1; more > 0 {
		pods += fmt.Sprintf(" and %d more", more)
	}
	j.add(ServiceTargetPortMissing, field, fix,
		"no container of %s has a port named %s%s: the Service has no endpoint for this port", pods, target, why)
	return 0
}

// unlisted reports a target port that is not among the listed container ports.
func (j *reporter) unlisted(with []*dnsconfig.Subject, field string, target cluster.Port) {
	if len(with) == 0 {
		return
	}
	var numbers []string
	for _, p := range with {
		if len(p.Spec.Ports) == 0 {
			return // they need not be listed
		}
		for _, own := range p.Spec.Ports {
			if own.Number == target.Number && own.Protocol == target.Protocol {
				return
			}
			text := fmt.Sprintf("%d/%s", own.Number, own.Protocol)
			if len(numbers) < mostHints && !slices.Contains(numbers, text) {
				numbers = append(numbers, text)
			}
		}
	}
	j.add(ServiceTargetPortUnlisted, field,
		"set targetPort to the port that the program listens on, or list it in the container's ports",
		"the Pods list the ports %s, not the target port %d/%s (%s)",
		firstFew(numbers), target.Number, target.Protocol, with[0])
}

// translated reports a target port of a headless Service that differs from the port.
func (j *reporter) translated(s *cluster.Service, field string, p cluster.Port, target uint16) {
	if s.Headless && p.Number != target {
		j.add(HeadlessPortTranslated, field, fmt.Sprintf("set port to %d, or give the Service a cluster IP", target),
			"the Service is headless, so no proxy translates port %d to %d: clients must connect to port %d",
			p.Number, target, target)
	}
}

// endpointHostnames checks that the hostnames of endpoints are unique in each family.
func (j *reporter) endpointHostnames(s *cluster.Service) {
	type host struct {
		name string
		v4   bool
	}
	first := make(map[host]*cluster.Endpoint)
	reported := make(map[string]bool)
	for _, slice := range j.View.SlicesOf(s.Key) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			h := host{e.Hostname, e.Addr.Is4()}
			other := first[h]
			switch {
			case e.Hostname == "" || reported[e.Hostname]:
			case other == nil:
				first[h] = e
			case other.Addr != e.Addr && (e.Pod == "" || other.Pod != e.Pod):
				reported[e.Hostname] = true
				j.add(EndpointHostnameShared, "", "give each endpoint its own hostname",
					"the endpoints %s and %s have the same hostname %s: the name %s.%s.%s.svc.%s has both addresses",
					other.Addr, e.Addr, e.Hostname, e.Hostname, s.Name, s.Namespace, j.domain())
			}
		}
	}
}

// hiddenServices checks for a namespace with the name of the Service: for Pods in the
// Service's namespace, HOST.NAME is an endpoint of the Service NAME before it is the
// Service HOST of the namespace NAME.
func (j *reporter) hiddenServices(s *cluster.Service) {
	if s.Name == s.Namespace || len(j.indexed().services[s.Name]) == 0 {
		return
	}
	reported := make(map[string]bool)
	for _, slice := range j.View.SlicesOf(s.Key) {
		for i := range slice.Endpoints {
			host := slice.Endpoints[i].Hostname
			if host == "" || reported[host] || j.View.Service(cluster.Key{Namespace: s.Name, Name: host}) == nil {
				continue
			}
			reported[host] = true
			j.add(ServiceHidesNamespace, "metadata.name", "rename the Service, or use "+host+"."+s.Name+".svc there",
				"in Pods of namespace %s, the name %s.%s resolves to the endpoint %s of this Service, not to the Service %s "+
					"of namespace %s",
				s.Namespace, host, s.Name, host, host, s.Name)
		}
	}
}

// Unready returns why a Pod is not ready, as a clause to append to its name; empty if its
// conditions do not tell.
func (c *Linter) Unready(p *cluster.Pod) string {
	why, _ := unready(p)
	return why
}
