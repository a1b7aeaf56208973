package object

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"portolan.dev/portolan/internal/cluster"
)

// operators are those of label selectors in text that the model has.
var operators = map[selection.Operator]cluster.Operator{
	selection.Equals: cluster.In, selection.DoubleEquals: cluster.In, selection.In: cluster.In,
	selection.NotEquals: cluster.NotIn, selection.NotIn: cluster.NotIn,
	selection.Exists: cluster.Exists, selection.DoesNotExist: cluster.DoesNotExist,
}

// ParseSelector parses a label selector in the syntax of kubectl, such as team=a,tier notin (x,y) (Kubernetes
// documentation, "Labels and Selectors"). An empty one selects everything.
func ParseSelector(text string) (*cluster.Selector, error) {
	parsed, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a label selector: %w", text, err)
	}
	s := new(cluster.Selector)
	requirements, _ := parsed.Requirements()
	for i := range requirements {
		r := &requirements[i]
		operator, known := operators[r.Operator()]
		if !known {
			return nil, fmt.Errorf("%q has the operator %s, which label selectors of Kubernetes objects do not have", text,
				r.Operator())
		}
		s.Requirements = append(s.Requirements, cluster.Requirement{
			Label: r.Key(), Operator: operator, Values: r.Values().List(),
		})
	}
	return s, nil
}
