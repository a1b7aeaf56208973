package object

import (
	"encoding/json"

	strictjson "sigs.k8s.io/json"
)

// salvage is how an object is read whose JSON does not have the types of the API.
type salvage struct {
	// invalid has, for fields of the spec, the JSON that stands for a value that can't be read. It is
	// decoded to what such a value means: nothing is let through.
	invalid map[string]string
	// rules are those of the fields that are lists of rules, which are read one by one: the function returns
	// the JSON that stands for a rule.
	rules map[string]func(rule []byte) string
}

// networkPolicySalvage: a NetworkPolicy selects all Pods of its namespace, in both directions.
var networkPolicySalvage = salvage{
	invalid: map[string]string{"podSelector": `{}`, "policyTypes": `["Ingress","Egress"]`},
	rules: map[string]func([]byte) string{
		"ingress": func([]byte) string { return `{"from":[{}]}` },
		"egress":  func([]byte) string { return `{"to":[{}]}` },
	},
}

// clusterNetworkPolicySalvage: a ClusterNetworkPolicy comes first in the Admin tier and selects all Pods;
// its rules keep their actions.
var clusterNetworkPolicySalvage = salvage{
	invalid: map[string]string{"tier": `""`, "priority": `-1`, "subject": `{}`},
	rules:   map[string]func([]byte) string{"ingress": actionOnly, "egress": actionOnly},
}

// actionOnly returns a rule of a ClusterNetworkPolicy with nothing but its action.
func actionOnly(rule []byte) string {
	var r struct {
		Action string `json:"action"`
	}
	_ = json.Unmarshal(rule, &r) // without an action, it denies
	text, err := json.Marshal(r)
	if err != nil {
		return `{}`
	}
	return string(text)
}

// read fills an empty object from JSON, as far as that can be read. newAPI makes more of them.
func (s *salvage) read(text []byte, into API, newAPI func() API) {
	var object struct {
		Metadata json.RawMessage `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
	}
	var given map[string]json.RawMessage
	whole := json.Unmarshal(text, &object) == nil && json.Unmarshal(object.Spec, &given) == nil
	spec := make(map[string]any)
	isRead := func(field string, value []byte) bool {
		probe, err := json.Marshal(map[string]any{"spec": map[string]json.RawMessage{field: value}})
		return err == nil && strictjson.UnmarshalCaseSensitivePreserveInts(probe, newAPI()) == nil
	}
	for field, invalid := range s.invalid {
		switch value, present := given[field]; {
		case present && isRead(field, value):
			spec[field] = value
		case present || !whole:
			spec[field] = json.RawMessage(invalid)
		}
	}
	for field, invalid := range s.rules {
		var rules []json.RawMessage
		switch value, present := given[field]; {
		case present && json.Unmarshal(value, &rules) != nil, !whole:
			rules = []json.RawMessage{json.RawMessage(invalid(nil))}
		case !present:
			continue
		}
		for i, rule := range rules {
			if one, err := json.Marshal(rules[i : i+1]); err != nil || !isRead(field, one) {
				rules[i] = json.RawMessage(invalid(rule))
			}
		}
		spec[field] = rules
	}
	made, err := json.Marshal(map[string]any{"spec": spec})
	if err == nil {
		_ = strictjson.UnmarshalCaseSensitivePreserveInts(made, into) // each field was read
	}
	identify(object.Metadata, into)
}

// identify sets the metadata that can be read: all of it, otherwise name and namespace.
func identify(text []byte, into API) {
	var whole struct {
		Annotations map[string]string `json:"annotations"`
	}
	var name struct {
		Name string `json:"name"`
	}
	var namespace struct {
		Namespace string `json:"namespace"`
	}
	for _, part := range []any{&whole, &name, &namespace} {
		_ = json.Unmarshal(text, part)
	}
	into.SetName(name.Name)
	into.SetNamespace(namespace.Namespace)
	into.SetAnnotations(whole.Annotations)
}
