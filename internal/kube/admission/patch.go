package admission

import "encoding/json"

// operation is one of a JSON patch (RFC 6902, section 4). Value is there in all
// that are used here.
type operation struct {
	Op    string `json:"op"`   // add, which replaces a member that is there, or test
	Path  string `json:"path"` // a JSON pointer (RFC 6901)
	Value any    `json:"value"`
}

// encode is a patch as JSON. Its values are strings, lists and API types, which
// always have one.
func encode(patch []operation) []byte {
	text, _ := json.Marshal(patch)
	return text
}
