package suite

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/peer"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/support/suggest"
)

// MostCases is the maximum number of cases of a suite.
const MostCases = 100_000

// Expand returns the cases of a suite in a cluster: each client of a test with each of its targets. Its errors are
// *Error, joined; the cases of tests without an error are returned with them.
func (s *Suite) Expand(v *cluster.View) (all []Case, err error) {
	var errs []error
	x := &expander{view: v}
	for i := range s.Tests {
		cases, err := x.test(&s.Tests[i], MostCases-len(all))
		if err != nil {
			errs = append(errs, &Error{s.File, s.Tests[i].Line, err})
			continue
		}
		all = append(all, cases...)
	}
	return all, errors.Join(errs...)
}

// expander finds what tests name. It sorts the Pods and workloads of a cluster once.
type expander struct {
	view     *cluster.View
	subjects []dnsconfig.Subject // nil before the first selector
}

// test returns the cases of a test, up to a number.
func (x *expander) test(t *Test, most int) (all []Case, err error) {
	clients, err := ends(t.From, x.clients)
	if err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	targets, err := ends(t.To, func(text string) ([]Case, error) { return x.targets(t, text) })
	if err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	if n := len(clients) * len(targets); n > most {
		return nil, fmt.Errorf("%d clients with %d targets are more cases than the %d that a suite may have", len(clients),
			len(targets), MostCases)
	}
	for _, from := range clients {
		for _, to := range targets {
			c := to
			c.Test, c.From, c.Client, c.Elsewhere, c.Namespace = t, from.From, from.Client, from.Elsewhere, from.Namespace
			if c.Pod != nil && from.Elsewhere == nil && c.Pod.Key == from.Client.Key && c.Pod.Kind == from.Client.Kind {
				continue // a Pod and itself
			}
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("each client is its own target, which nothing is asserted of: name other Pods")
	}
	return all, nil
}

// ends returns what texts name, up to MostCases.
func ends(texts []string, of func(string) ([]Case, error)) (all []Case, err error) {
	for _, text := range texts {
		named, err := of(text)
		if err != nil {
			return nil, err
		}
		if all = append(all, named...); len(all) > MostCases {
			return nil, fmt.Errorf("more than %d are named", MostCases)
		}
	}
	return all, nil
}

// clients returns the clients that a text names, in cases without a target: node/NAME, outside, outside/NODE, an
// address, a Pod or workload, or Pods by a selector.
func (x *expander) clients(text string) (all []Case, err error) {
	place, node, _ := strings.Cut(text, "/")
	if isPlace(place) {
		if err := x.checkNode(place, node); err != nil {
			return nil, err
		}
		c, _ := peer.ParseClient(place, node)
		return []Case{{From: text, Elsewhere: &c, Namespace: "default"}}, nil
	}
	subjects, err := x.pods(text)
	for _, s := range subjects {
		all = append(all, Case{From: name(&s), Client: s, Namespace: s.Namespace})
	}
	return all, err
}

// checkNode returns an error if a client is on a node that the cluster does not have, or on one of several. Without
// any Node, as in manifests, each may exist.
func (x *expander) checkNode(place, node string) error {
	var names []string
	for n := range x.view.Nodes() {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	switch {
	case len(names) == 0 || slices.Contains(names, node):
		return nil
	case node != "":
		return fmt.Errorf("there is no Node %q: write %s/%s", node, place, cmp.Or(suggest.Closest(node, names), names[0]))
	case len(names) > 1 && place == peer.Node:
		return fmt.Errorf("there are several Nodes: write which it is, such as %s/%s", place, names[0])
	}
	return nil
}

// targets returns what a text names as a target, in cases without a client: a URL, a name alone, Pods by a selector
// with a port, or what peer.Parse parses.
func (x *expander) targets(t *Test, text string) (all []Case, err error) {
	if peer.IsURL(text) {
		m, err := request.ParseMessage(cmp.Or(t.Method, "GET"), text, t.Headers)
		return []Case{{To: text, Message: &m}}, err
	}
	if t.Method != "" || len(t.Headers) > 0 {
		return nil, fmt.Errorf("method and headers go with a URL, and %q is none", text)
	}
	host, port := text, ""
	if at := strings.LastIndex(text, ":"); at >= 0 {
		host, port = text[:at], text[at+1:]
	}
	if isSelector(host) {
		subjects, err := x.pods(host)
		if err != nil {
			return nil, err
		}
		of, _, err := peer.ParseTarget("pod:" + port)
		for _, s := range subjects {
			c := Case{To: name(&s) + ":" + port, Pod: &s}
			c.Peer.Target, c.Peer.Host = of, name(&s)
			all = append(all, c)
		}
		return all, err
	}
	c := Case{To: text}
	if isName(text) {
		c.Name = text
		return []Case{c}, nil
	}
	if c.Peer, err = peer.Parse(text); err == nil && c.Peer.Pod != nil {
		var s dnsconfig.Subject
		s, err = c.Peer.Pod.Find(x.view)
		c.Pod = &s
	}
	return []Case{c}, err
}

// isName reports whether a target is a name without a port.
func isName(text string) bool { return !strings.ContainsAny(text, "/:") && !peer.IsAddress(text) }

// isSelector reports whether a text is NAMESPACE/SELECTOR.
func isSelector(text string) bool {
	_, selector, ok := strings.Cut(text, "/")
	return ok && (selector == everything || strings.ContainsAny(selector, "=!() "))
}

// everything is the selector of all Pods, and the name of all namespaces.
const everything = "*"

// pods returns the Pods and workloads that a text names or selects. Of a workload its Pods are selected, if there are
// any.
func (x *expander) pods(text string) (all []dnsconfig.Subject, err error) {
	if !isSelector(text) {
		r, err := dnsconfig.ParseReference(text)
		if err != nil {
			return nil, err
		}
		s, err := r.Find(x.view)
		return []dnsconfig.Subject{s}, err
	}
	namespace, selector, _ := strings.Cut(text, "/")
	selects := labels.Everything()
	if selector != everything {
		if selects, err = labels.Parse(selector); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
	}
	for _, s := range x.all() {
		if (namespace == everything || s.Namespace == namespace) && selects.Matches(labels.Set(s.Labels)) && !s.Finished() {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s selects no Pod", text)
	}
	return all, nil
}

// all returns the Pods of the cluster, and the workloads that have none: no Pod has the labels of their template.
func (x *expander) all() []dnsconfig.Subject {
	if x.subjects != nil {
		return x.subjects
	}
	byNamespace := make(map[string][]*cluster.Pod)
	for p := range x.view.Pods() {
		x.subjects = append(x.subjects, dnsconfig.SubjectOfPod(p))
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	for _, s := range dnsconfig.Subjects(x.view) {
		template := labels.SelectorFromSet(s.Labels)
		has := func(p *cluster.Pod) bool { return template.Matches(labels.Set(p.Labels)) }
		if s.Pod == nil && !slices.ContainsFunc(byNamespace[s.Namespace], has) {
			x.subjects = append(x.subjects, s)
		}
	}
	slices.SortFunc(x.subjects, func(a, b dnsconfig.Subject) int {
		return cmp.Or(a.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
	})
	return x.subjects
}

// name returns the name of a Pod or workload as a reference.
func name(s *dnsconfig.Subject) string {
	if s.Pod != nil {
		return s.Key.String()
	}
	return s.Namespace + "/" + strings.ToLower(s.Kind.String()) + "/" + s.Name
}
