package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// nameLabel is the label that every Namespace has, with its name as value.
const nameLabel = "kubernetes.io/metadata.name"

// canonical returns a text that is the same for selectors that have the same conditions.
func canonical(s *cluster.Selector) string {
	conditions := make([]string, 0, len(s.Labels)+len(s.Requirements))
	for label, value := range s.Labels {
		conditions = append(conditions, plain(label)+"="+plain(value))
	}
	for i := range s.Requirements {
		conditions = append(conditions, condition(&s.Requirements[i]))
	}
	slices.Sort(conditions)
	return strings.Join(slices.Compact(conditions), ",")
}

func condition(r *cluster.Requirement) string {
	values := make([]string, 0, len(r.Values))
	for _, v := range r.Values {
		values = append(values, plain(v))
	}
	slices.Sort(values)
	values = slices.Compact(values)
	label, list := plain(r.Label), "("+strings.Join(values, ",")+")"
	switch {
	case r.Operator == cluster.In && len(values) == 1:
		return label + "=" + values[0]
	case r.Operator == cluster.In:
		return label + " in " + list
	case r.Operator == cluster.NotIn:
		return label + " notin " + list
	case r.Operator == cluster.Exists:
		return label
	case r.Operator == cluster.DoesNotExist:
		return "!" + label
	}
	return label + " " + plain(string(r.Operator)) + " " + list
}

// plain quotes what is no label or value of the API, so that texts can't be equal by chance.
func plain(s string) string {
	const valid = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
	if strings.Trim(s, valid) == "" {
		return s
	}
	return strconv.Quote(s)
}

// podSelector selects Pods by their labels in one namespace, or in those with certain labels.
type podSelector struct {
	// key is the same for equal selectors, and a text for people.
	key       string
	namespace string            // or
	of        *cluster.Selector // namespaces; nil for the one
	pods      *cluster.Selector
}

// inNamespace selects Pods of a namespace; nil selects all.
func inNamespace(namespace string, pods *cluster.Selector) podSelector {
	if pods == nil {
		pods = new(cluster.Selector)
	}
	return podSelector{key: namespace + "/" + canonical(pods), namespace: namespace, pods: pods}
}

// inNamespaces selects Pods of the namespaces that a selector matches; nil selects all Pods there.
func inNamespaces(of, pods *cluster.Selector) podSelector {
	text := canonical(of)
	if name, ok := strings.CutPrefix(text, nameLabel+"="); ok && !strings.ContainsAny(name, `,"`) {
		return inNamespace(name, pods)
	}
	s := inNamespace("", pods)
	s.key, s.of = "{"+text+"}"+s.key, of
	return s
}

// term is what a label of a Pod must be, or not be, for a group.
type term struct {
	namespace string // empty for groups of several namespaces
	kind      termKind
	label     string
	value     string
}

// termKind is the kind of a term.
type termKind uint8

const (
	// always is the term of groups that Pods without labels are in.
	always termKind = iota
	// hasValue is that of groups which depend on whether a label has a value.
	hasValue
	// hasLabel is that of groups which depend on whether there is a label.
	hasLabel
)

// terms returns those that the selector depends on: if a Pod's labels change and none of them does,
// the selector selects it as before.
func (s *podSelector) terms() (terms []term) {
	if s.pods.Selects(nil) {
		terms = append(terms, term{s.namespace, always, "", ""})
	}
	for label, value := range s.pods.Labels {
		terms = append(terms, term{s.namespace, hasValue, label, value})
	}
	for _, r := range s.pods.Requirements {
		switch r.Operator {
		case cluster.In, cluster.NotIn:
			for _, v := range r.Values {
				terms = append(terms, term{s.namespace, hasValue, r.Label, v})
			}
		default:
			terms = append(terms, term{s.namespace, hasLabel, r.Label, ""})
		}
	}
	slices.SortFunc(terms, func(a, b term) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.label, b.label), strings.Compare(a.value, b.value))
	})
	return slices.Compact(terms)
}
