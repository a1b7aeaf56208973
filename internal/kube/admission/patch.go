package admission

import "encoding/json"

// operation is an operation of a JSON patch (RFC 6902, section 4). All that are used
// here have a value.
type operation struct {
	Op    string `json:"op"`   // add, which replaces an existing member, or test
	Path  string `json:"path"` // a JSON pointer (RFC 6901)
	Value any    `json:"value"`
}

// encode returns a patch as JSON. Its values, strings, lists and API types, can always
// be encoded.
func encode(patch []operation) []byte {
	text, _ := json.Marshal(patch) //nolint:errchkjson // see above
	return text
}
