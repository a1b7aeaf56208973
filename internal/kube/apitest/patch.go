package apitest

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Operation is an operation of a JSON patch (RFC 6902): add or test.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Apply applies a JSON patch to a document. It knows the operations that Portolan's
// patches have. A patch that fails may be applied in part.
func Apply(document map[string]any, patch []Operation) error {
	for _, o := range patch {
		steps := strings.Split(o.Path, "/")
		if len(steps) < 2 || steps[0] != "" {
			return fmt.Errorf("%q is not a JSON pointer", o.Path)
		}
		parent, err := walk(document, steps[1:len(steps)-1])
		if err != nil {
			return fmt.Errorf("%s: %w", o.Path, err)
		}
		members, ok := parent.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: the parent is not an object", o.Path)
		}
		last := unescape(steps[len(steps)-1])
		switch {
		case o.Op == "add":
			members[last] = o.Value
		case o.Op != "test":
			return fmt.Errorf("%s: unknown operation %q", o.Path, o.Op)
		case !reflect.DeepEqual(members[last], o.Value):
			return fmt.Errorf("%s: the test failed", o.Path)
		}
	}
	return nil
}

// walk returns the value that the steps of a JSON pointer lead to.
func walk(at any, steps []string) (any, error) {
	for _, step := range steps {
		switch of := at.(type) {
		case map[string]any:
			at = of[unescape(step)]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(of) {
				return nil, fmt.Errorf("%q is not an index of the list", step)
			}
			at = of[i]
		default:
			return nil, fmt.Errorf("%q does not exist", step)
		}
	}
	return at, nil
}

// unescape decodes a step of a JSON pointer (RFC 6901, section 4).
func unescape(step string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
}
