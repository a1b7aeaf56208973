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

// apiServer is the Service that the API server keeps itself.
var apiServer = cluster.Key{Namespace: "default", Name: "kubernetes"}

// Service judges a Service, and what is behind it.
func (c *Linter) CheckService(s *cluster.Service) []Finding {
	j := c.reporterFor(cluster.KindService, s.Key)
	if s.ExternalName != "" {
		j.external(s)
		return j.found()
	}
	b := j.backing(s)
	switch {
	case len(s.Selector) == 0:
		j.withoutSelector(s, &b)
	case c.podsLoaded():
		j.selector(s, &b)
	}
	j.readiness(s, &b)
	j.families(s, &b)
	j.portNames(s)
	j.targets(s, &b)
	j.sharedAddresses(s)
	j.endpointHostnames(s)
	j.hiddenServices(s)
	if s.Key == c.DNSService {
		j.dnsServicePorts(s)
	}
	return j.found()
}

// backing is what is behind a Service.
type backing struct {
	slices []*cluster.EndpointSlice
	// endpoints are those of the slices, by address; ready are those of them.
	endpoints map[netip.Addr]*cluster.Endpoint
	ready     []netip.Addr
	// selected are the Pods and templates that it selects.
	selected []*dnsconfig.Subject
}

func (j *reporter) backing(s *cluster.Service) backing {
	b := backing{slices: j.View.SlicesOf(s.Key), endpoints: make(map[netip.Addr]*cluster.Endpoint), selected: j.indexed().selected(s)}
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

// withoutSelector: nobody makes endpoints for a Service without selector.
func (j *reporter) withoutSelector(s *cluster.Service, b *backing) {
	if !j.loaded(cluster.KindEndpointSlice) || s.Key == apiServer || len(b.endpoints) > 0 {
		return
	}
	if slices.ContainsFunc(b.slices, func(e *cluster.EndpointSlice) bool { return e.AddressType == cluster.FQDN }) {
		return // endpointslice-fqdn says so
	}
	j.add(ServiceNoEndpoints, "spec", "give it a selector, or an EndpointSlice with the label kubernetes.io/service-name: "+s.Name,
		"it has no selector, so that nobody makes endpoints for it, and no EndpointSlice has any: %s", nobodyAnswers(s))
}

// nobodyAnswers is what a client meets at a Service without endpoints.
func nobodyAnswers(s *cluster.Service) string {
	if s.Headless {
		return "its name does not exist"
	}
	if len(s.ClusterIPs) == 0 {
		return "nothing is behind it" // the cluster will give it an address
	}
	return "its name resolves, and nothing answers at its address"
}

// selector: what a Service selects must be there.
func (j *reporter) selector(s *cluster.Service, b *backing) {
	if len(b.endpoints) > 0 {
		return // of Pods that the model does not have
	}
	if len(b.selected) == 0 {
		hint, fix, slip := j.nearestSelected(s)
		severity := Warning // who makes its Pods may not be known, nor what labels they get
		if slip {
			severity = Error
		}
		if hint == "" && !j.indexed().occupied[s.Namespace] {
			hint = fmt.Sprintf(", for no Pod or workload of the namespace %s is known", s.Namespace)
		}
		j.addAs(severity, ServiceSelectsNoPod, "spec.selector", fix, "it selects no Pod%s: %s", hint, nobodyAnswers(s))
		return
	}
	for _, p := range b.selected {
		if p.Workload == nil || p.Workload.Replicas > 0 {
			return
		}
	}
	j.add(ServiceScaledToZero, "spec.selector", "give "+b.selected[0].String()+" a replica",
		"all that it selects has 0 replicas, %s: %s", b.selected[0], nobodyAnswers(s))
}

// nearestSelected says which Pod or template a Service's selector just misses,
// what to do, and whether that is a slip, and no label that Pods get as they run.
func (j *reporter) nearestSelected(s *cluster.Service) (hint, fix string, slip bool) {
	x := j.indexed()
	fix = "set spec.selector to labels that its Pods have"
	for _, label := range slices.Sorted(maps.Keys(s.Selector)) {
		elsewhere := &cluster.Service{Selector: s.Selector}
		for _, p := range x.byLabel[labelKey{"", label, s.Selector[label]}] {
			if elsewhere.Namespace = p.Namespace; elsewhere.SelectsLabels(p.Namespace, p.Labels) {
				return fmt.Sprintf(", and would select %s in the namespace %s", p, p.Namespace), "put the Service into the namespace of the Pods", true
			}
		}
	}
	if p, label := x.allButOne(s); p != nil {
		if value, ok := p.Labels[label]; ok {
			return fmt.Sprintf(": %s has %s=%s and the Service wants %s", p, label, value, s.Selector[label]), "set spec.selector to " + label + "=" + value + ", or the label to " + s.Selector[label],
				suggest.Closest(s.Selector[label], []string{value}) != ""
		}
		return fmt.Sprintf(": %s has all labels that it wants but %s=%s", p, label, s.Selector[label]), "leave " + label + " out of spec.selector, or give it to the Pods", false
	}
	for _, label := range slices.Sorted(maps.Keys(s.Selector)) {
		value := s.Selector[label]
		if near := suggest.Closest(value, x.values[valueKey{s.Namespace, label}]); near != "" {
			p := x.byLabel[labelKey{s.Namespace, label, near}][0]
			return fmt.Sprintf(": %s has %s=%s and the Service wants %s", p, label, near, value), "set spec.selector to " + label + "=" + near + ", or the label to " + value, true
		}
		if with := x.byValue[valueKey{s.Namespace, value}]; len(with) > 0 {
			other := labelOf(with[0], value)
			return fmt.Sprintf(": %s has %s=%s and the Service wants %s=%s", with[0], other, value, label, value), "set spec.selector to " + other + "=" + value, true
		}
	}
	return "", fix, false
}

// allButOne finds a Pod or template that has all labels of the selector but
// one, which it gives.
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

// missing are the labels of a selector that are not among those, sorted.
func missing(selector, labels map[string]string) (missed []string) {
	for label, value := range selector {
		if got, ok := labels[label]; !ok || got != value {
			missed = append(missed, label)
		}
	}
	slices.Sort(missed)
	return missed
}

// labelOf is the first label of a Subject with that value.
func labelOf(p *dnsconfig.Subject, value string) string {
	for _, label := range slices.Sorted(maps.Keys(p.Labels)) {
		if p.Labels[label] == value {
			return label
		}
	}
	return ""
}

// readiness: a name needs a ready endpoint.
func (j *reporter) readiness(s *cluster.Service, b *backing) {
	if !j.loaded(cluster.KindEndpointSlice) || len(b.ready) > 0 {
		return
	}
	if len(b.endpoints) > 0 {
		why, fix := j.unreadyEndpoint(b)
		what := "not ready"
		if n := len(b.endpoints); n > 1 {
			what = "none ready"
		}
		j.add(ServiceNoReadyEndpoint, "", fix, "it has %s, %s%s: %s", counted(len(b.endpoints), "endpoint"), what, why, nobodyAnswers(s))
		return
	}
	if len(b.slices) == 0 {
		return // nobody has looked for endpoints yet
	}
	for _, p := range b.selected {
		if p.Pod != nil {
			why, fix := unready(p.Pod)
			j.add(ServiceNoReadyEndpoint, "", fix, "it has no endpoint, though it selects %s%s: %s", p, why, nobodyAnswers(s))
			return
		}
	}
}

// unreadyEndpoint says of one endpoint why it is not ready, as far as that is
// known, and what to do.
func (j *reporter) unreadyEndpoint(b *backing) (why, fix string) {
	addrs := slices.SortedFunc(maps.Keys(b.endpoints), func(a, c netip.Addr) int { return a.Compare(c) })
	for _, addr := range addrs {
		e := b.endpoints[addr]
		for _, slice := range b.slices[:1] {
			if p := j.View.Pod(cluster.Key{Namespace: slice.Namespace, Name: e.Pod}); e.Pod != "" && p != nil {
				if why, fix := unready(p); why != "" {
					return " (pod " + p.Key.String() + why + ")", fix
				}
			}
		}
		if e.Terminating {
			return " (" + addr.String() + " is terminating)", "wait for the Pods that take the place of those that end"
		}
	}
	return "", "see why the Pods are not ready, or set spec.publishNotReadyAddresses if they must be found before they are"
}

// telling are conditions in the order in which they explain others.
var telling = []string{"PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady"}

// unready says why a Pod is not ready: the text goes on behind its name. It is
// empty when the Pod does not say.
func unready(p *cluster.Pod) (why, fix string) {
	fix = "see why the Pod is not ready: kubectl describe pod " + p.Name + " --namespace " + p.Namespace
	if p.Deleting {
		return ", which is terminating", "wait for the Pod that takes its place"
	}
	if len(p.Unmet) == 0 {
		return "", fix
	}
	c := slices.MinFunc(p.Unmet, func(a, b cluster.Condition) int { return cmp.Compare(tellingRank(a.Type), tellingRank(b.Type)) })
	because := strings.Join(slices.DeleteFunc([]string{c.Reason, c.Message}, func(s string) bool { return s == "" }), ": ")
	if because != "" {
		because = ", " + because
	}
	return fmt.Sprintf(", whose condition %s is %s%s", c.Type, c.Status, because), fix
}

// tellingRank puts gates of readiness before the conditions that wait for them.
func tellingRank(condition string) int {
	switch i := slices.Index(telling, condition); {
	case i >= 0:
		return i
	case condition == "Ready":
		return len(telling) + 1
	}
	return len(telling)
}

// families: an address of a family at which nobody can answer.
func (j *reporter) families(s *cluster.Service, b *backing) {
	if len(s.ClusterIPs) < 2 || len(b.ready) == 0 {
		return
	}
	for i, addr := range s.ClusterIPs {
		if !slices.ContainsFunc(b.ready, func(e netip.Addr) bool { return e.Is4() == addr.Is4() }) {
			j.add(ServiceFamilyNoEndpoint, fmt.Sprintf("spec.clusterIPs[%d]", i), "give the Pods addresses of both families, or the Service one family in spec.ipFamilies",
				"it has the %s cluster IP %s, and no ready endpoint of that family: clients that try it first wait in vain", cluster.FamilyOf(addr), addr)
		}
	}
}

// portNames: ports are found by their names.
func (j *reporter) portNames(s *cluster.Service) {
	names := make(map[string]int)
	for i, p := range s.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		first, twice := names[p.Name]
		switch {
		case p.Name == "" && len(s.Ports) > 1:
			j.add(ServicePortNames, field, "give each port a name", "port %d has no name, and the Service has %d ports: the API server refuses it", p.Number, len(s.Ports))
		case p.Name == "":
			j.add(ServicePortUnnamed, field, "give the port a name, such as http", "port %d has no name, so that no SRV record _NAME._%s.%s.%s.svc.%s leads to it",
				p.Number, strings.ToLower(string(p.Protocol)), s.Name, s.Namespace, j.domain())
		case twice:
			j.add(ServicePortNames, field+".name", "give each port a name of its own", "the name %s is that of spec.ports[%d], too: the API server refuses it", p.Name, first)
		default:
			names[p.Name] = i
		}
	}
}

// domain is the cluster's main one.
func (c *Linter) domain() string {
	if len(c.Domains) == 0 {
		return "cluster.local"
	}
	return c.Domains[0]
}

// targets: ports must lead to ports of the Pods.
func (j *reporter) targets(s *cluster.Service, b *backing) {
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

// namedTarget finds the port of that name of a Pod; 0 when none has it.
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
	why, fix := ", which have no port with a name", "name the container's port "+target+", or set targetPort to its number"
	switch near := suggest.Closest(target, names); {
	case other != "":
		why, fix = fmt.Sprintf(" of protocol %s: it is one of %s", protocol, other), "set the same protocol in both places"
	case near != "":
		why, fix = ": is "+near+" meant?", "set targetPort to "+near
	case len(names) > 0:
		why, fix = ", which have "+some(names), "set targetPort to one of them, or to a number"
	}
	j.add(ServiceTargetPortMissing, field, fix, "no container of the Pods has a port named %s%s (%s): the Service has no endpoint for this port", target, why, with[0])
	return 0
}

// unlisted: a number that no container lists may be a slip.
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
			if text := fmt.Sprintf("%d/%s", own.Number, own.Protocol); len(numbers) < mostHints && !slices.Contains(numbers, text) {
				numbers = append(numbers, text)
			}
		}
	}
	j.add(ServiceTargetPortUnlisted, field, "set targetPort to the port that the program listens on, or list it in the container's ports",
		"the Pods list %s and not the target %d/%s (%s)", some(numbers), target.Number, target.Protocol, with[0])
}

// translated: nobody translates the ports of a headless Service.
func (j *reporter) translated(s *cluster.Service, field string, p cluster.Port, target uint16) {
	if s.Headless && p.Number != target {
		j.add(HeadlessPortTranslated, field, fmt.Sprintf("set port to %d, or give the Service a cluster IP", target),
			"the Service is headless, so that nothing takes port %d to %d: clients of its name must use %d", p.Number, target, target)
	}
}

// sharedAddresses: an address is one Service's.
func (j *reporter) sharedAddresses(s *cluster.Service) {
	for i, addr := range s.ClusterIPs {
		for _, other := range j.indexed().clusterIPs[addr] {
			if other.Key != s.Key {
				j.add(ClusterIPShared, fmt.Sprintf("spec.clusterIPs[%d]", i), "leave clusterIP out, so that the cluster assigns one",
					"cluster IP %s is that of service %s, too: the API server refuses it, and its reverse name has both", addr, other.Key)
				break
			}
		}
	}
}

// endpointHostnames: a hostname is to find one endpoint.
func (j *reporter) endpointHostnames(s *cluster.Service) {
	type host struct {
		name string
		v4   bool
	}
	first := make(map[host]*cluster.Endpoint)
	said := make(map[string]bool)
	for _, slice := range j.View.SlicesOf(s.Key) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			h := host{e.Hostname, e.Addr.Is4()}
			other := first[h]
			switch {
			case e.Hostname == "" || said[e.Hostname]:
			case other == nil:
				first[h] = e
			case other.Addr != e.Addr && (e.Pod == "" || other.Pod != e.Pod):
				said[e.Hostname] = true
				j.add(EndpointHostnameShared, "", "give each endpoint a hostname of its own",
					"the endpoints %s and %s have the same hostname %s: the name %s.%s.%s.svc.%s is both", other.Addr, e.Addr, e.Hostname, e.Hostname, s.Name, s.Namespace, j.domain())
			}
		}
	}
}

// hiddenServices: in its own namespace, HOST.NAME is an endpoint of the Service
// NAME before it is the Service HOST of the Namespace NAME.
func (j *reporter) hiddenServices(s *cluster.Service) {
	if s.Name == s.Namespace || len(j.indexed().services[s.Name]) == 0 {
		return
	}
	said := make(map[string]bool)
	for _, slice := range j.View.SlicesOf(s.Key) {
		for i := range slice.Endpoints {
			host := slice.Endpoints[i].Hostname
			if host == "" || said[host] || j.View.Service(cluster.Key{Namespace: s.Name, Name: host}) == nil {
				continue
			}
			said[host] = true
			j.add(ServiceHidesNamespace, "metadata.name", "rename the Service, or write "+host+"."+s.Name+".svc there",
				"for Pods of the namespace %s the name %s.%s is the endpoint %s of this Service, not the Service %s of the Namespace %s", s.Namespace, host, s.Name, host, host, s.Name)
		}
	}
}
