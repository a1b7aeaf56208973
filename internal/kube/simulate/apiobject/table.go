package apiobject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"portolan.dev/portolan/internal/cluster"
)

// Columns selects the columns of a table that depend on options.
type Columns struct {
	// Namespace adds the namespace as the first column.
	Namespace bool
	// Kind puts the kind before each name, as in service/web.
	Kind bool
	// Wide adds the columns of kubectl's -o wide.
	Wide bool
	// Now is the time relative to which ages are computed.
	Now time.Time
}

// Texts for missing values in kubectl's tables.
const (
	none    = "<none>"
	unknown = "<unknown>"
	unset   = "<unset>"
	pending = "<pending>"
)

// headers are those of kubectl's tables (k8s.io/kubernetes,
// pkg/printers/internalversion): the usual columns and those added by -o wide.
var headers = map[cluster.Kind]struct{ usual, wide []string }{
	cluster.KindService: {
		[]string{"NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"}, []string{"SELECTOR"},
	},
	cluster.KindEndpointSlice: {
		[]string{"NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"}, nil,
	},
	cluster.KindPod: {
		[]string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"},
		[]string{"IP", "NODE", "NOMINATED NODE", "READINESS GATES"},
	},
}

// otherHeader is the header of the other kinds, of which the model has no status.
var otherHeader = []string{"NAME", "AGE"}

// Table returns a header and a row for each object of a kind, as kubectl prints them. The
// STATUS of a simulated Pod is Simulated.
func Table(kind cluster.Kind, objects []Object, c Columns) (rows [][]string) {
	h, ok := headers[kind]
	if !ok {
		h.usual = otherHeader
	}
	head := slices.Clone(h.usual)
	if c.Wide {
		head = append(head, h.wide...)
	}
	rows = append(rows, head)
	for _, o := range objects {
		var usual, wide []string
		switch o := o.(type) {
		case *corev1.Service:
			usual, wide = serviceCells(o, &c)
		case *discoveryv1.EndpointSlice:
			usual = sliceCells(o)
		case *corev1.Pod:
			usual, wide = podCells(o, c.Now)
		default:
			usual = []string{o.GetName()}
		}
		if c.Kind {
			usual[0] = Prefix(kind) + "/" + usual[0]
		}
		row := append(usual, ageText(o.GetCreationTimestamp(), c.Now))
		if c.Wide {
			row = append(row, wide...)
		}
		rows = append(rows, row)
	}
	if c.Namespace {
		for i := range rows {
			namespace := "NAMESPACE"
			if i > 0 {
				namespace = objects[i-1].GetNamespace()
			}
			rows[i] = slices.Insert(rows[i], 0, namespace)
		}
	}
	return rows
}

// Age returns the age of an object as kubectl prints it. created is its creationTimestamp, in seconds since 1970;
// 0 without one.
func Age(created int64, now time.Time) string {
	if created == 0 {
		return unknown
	}
	return ageText(metav1.Unix(created, 0), now)
}

func ageText(created metav1.Time, now time.Time) string {
	if created.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(created.Time))
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func serviceCells(s *corev1.Service, c *Columns) (usual, wide []string) {
	ip := none
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	} else if s.Spec.ClusterIP != "" { // declared without clusterIPs
		ip = s.Spec.ClusterIP
	}
	var ports []string
	for i := range s.Spec.Ports {
		ports = append(ports, portText(&s.Spec.Ports[i]))
	}
	usual = []string{s.Name, string(s.Spec.Type), ip, externalIP(s, c), orElse(strings.Join(ports, ","), none)}
	return usual, []string{labels.FormatLabels(s.Spec.Selector)}
}

// externalIP returns the value of the column EXTERNAL-IP.
func externalIP(s *corev1.Service, c *Columns) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		given := s.Spec.ExternalIPs
		if balancers := loadBalancers(s, c); balancers != "" {
			given = slices.Concat([]string{balancers}, given)
		}
		return orElse(strings.Join(given, ","), pending)
	}
	return orElse(strings.Join(s.Spec.ExternalIPs, ","), none)
}

// loadBalancers returns the addresses of a Service's load balancer, truncated unless
// columns are wide.
func loadBalancers(s *corev1.Service, c *Columns) string {
	const width = 16
	var all []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		if at := orElse(i.IP, i.Hostname); at != "" {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	text := strings.Join(slices.Compact(all), ",")
	if !c.Wide && len(text) > width {
		text = text[:width-len("...")] + "..."
	}
	return text
}

func sliceCells(s *discoveryv1.EndpointSlice) []string {
	var ports, addresses []string
	for _, p := range s.Ports {
		text := "*" // every port
		if p.Port != nil {
			text = strconv.Itoa(int(*p.Port))
		} else if p.Name != nil && *p.Name != "" {
			text = *p.Name
		}
		ports = append(ports, text)
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []string{s.Name, string(s.AddressType), shortened(ports), shortened(addresses)}
}

// shortened returns the first three elements and the number of the others.
func shortened(all []string) string {
	const shown = 3
	text := orElse(strings.Join(all[:min(len(all), shown)], ","), unset)
	if more := len(all) - shown; more > 0 {
		text += fmt.Sprintf(" + %d more...", more)
	}
	return text
}

func podCells(p *corev1.Pod, now time.Time) (usual, wide []string) {
	s := stateOf(p)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts > 0 && !s.restarted.IsZero() {
		restarts += " (" + ageText(s.restarted, now) + " ago)"
	}
	ip, gates := "", none
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	if n := len(p.Spec.ReadinessGates); n > 0 {
		gates = fmt.Sprintf("%d/%d", trueGates(p), n)
	}
	return []string{p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.reason, restarts},
		[]string{orElse(ip, none), orElse(p.Spec.NodeName, none), orElse(p.Status.NominatedNodeName, none), gates}
}

func trueGates(p *corev1.Pod) (open int) {
	for _, g := range p.Spec.ReadinessGates {
		if isTrue(&p.Status, g.ConditionType) {
			open++
		}
	}
	return open
}

func isTrue(s *corev1.PodStatus, kind corev1.PodConditionType) bool {
	c := condition(s, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}
