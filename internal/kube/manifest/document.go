package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/support/yamlerr"
)

// document is one document of a file, as JSON.
type document struct {
	line int // its first, from 1
	json []byte
	tree *yaml.Node // with the lines of its fields; nil until one is needed
	// source is the text that tree is made of, which begins in the line first, and items are the lines of its items;
	// nil if it is json, or if there is a tree.
	source []byte
	first  int
	items  []int
	err    error // why it is invalid; then head is what could be read
	head   head
}

// head is the fields that identify a document.
type head struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   headMeta `json:"metadata"`
}

type headMeta struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// json returns an object that has nothing else.
func (h head) json() []byte {
	text, err := json.Marshal(h)
	if err != nil {
		return nil // not with strings only
	}
	return text
}

// isJSON reports whether a file is all JSON, and not a YAML mapping in flow style,
// which looks like it.
func isJSON(data []byte) bool {
	start := bytes.TrimLeft(data, " \t\r\n")
	return len(start) > 0 && start[0] == '{' && !separator.Match(data) && json.Valid(firstJSON(start))
}

// firstJSON returns the first JSON value in data, or data when it has none.
func firstJSON(data []byte) []byte {
	var raw json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&raw); err != nil {
		return data
	}
	return raw
}

// splitJSON reads the documents of a JSON file, up to the first invalid one.
func splitJSON(data []byte) []document {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		start := int(dec.InputOffset())
		start += len(data[start:]) - len(bytes.TrimLeft(data[start:], " \t\r\n"))
		line := 1 + bytes.Count(data[:start], []byte("\n"))
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
				line = 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
			}
			return append(docs, document{line: line, err: err})
		}
		doc := document{line: line, json: raw}
		if raw[0] == '{' {
			doc.err = json.Unmarshal(raw, &doc.head)
		}
		docs = append(docs, doc)
	}
}

var separator = regexp.MustCompile(`(?m)^(?:---|\.\.\.)(?:[ \t].*)?\r?$`)

// bareMarker is a separator without content on its line.
var bareMarker = regexp.MustCompile(`^(?:---|\.\.\.)[ \t\r]*(?:[ \t]#.*)?$`)

// splitYAML splits data before each line that begins or ends a document. Content
// of block scalars is indented, so such a line is never content.
func splitYAML(data []byte) (chunks [][]byte) {
	start := 0
	for at := 0; at < len(data); {
		if line := data[at:]; bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("...")) {
			if line, _, _ = bytes.Cut(line, []byte("\n")); separator.Match(line) {
				chunks = append(chunks, data[start:at])
				start = at
			}
		}
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		at += end + 1
	}
	return append(chunks, data[start:])
}

// readYAML reads one document that begins at the given line; ok is false when it
// is empty.
func readYAML(chunk []byte, line int) (doc document, ok bool) {
	first := firstLine(chunk)
	if first < 0 {
		return document{}, false
	}
	if marker, _, _ := bytes.Cut(chunk, []byte("\n")); bytes.HasPrefix(marker, []byte("...")) && bareMarker.Match(marker) {
		chunk = append([]byte("###"), chunk[3:]...)
	}
	var root yaml.Node
	err := yaml.Unmarshal(chunk, &root)
	if err == nil && (root.Kind == 0 || root.Content[0].Tag == "!!null") {
		return document{}, false
	}
	doc.line = line + first
	if err != nil {
		var at int
		if at, doc.err = yamlerr.Split(err); at > 0 {
			doc.line = line + at - 1
		}
		return doc, true
	}
	doc.tree = root.Content[0]
	shiftLines(doc.tree, line-1)
	doc.line = doc.tree.Line
	doc.head = headOf(doc.tree)
	if doc.err = checkAliases(doc.tree); doc.err != nil {
		return doc, true
	}
	var value any
	if err := doc.tree.Decode(&value); err != nil {
		var at int
		if at, doc.err = yamlerr.Split(err); at > 0 {
			doc.line = at
		}
		return doc, true
	}
	plain, err := plainValue(value)
	if err == nil {
		doc.json, err = json.Marshal(plain)
	}
	doc.err = err
	// In JSON, aliases and merge keys are resolved.
	var resolved head
	if err == nil && json.Unmarshal(doc.json, &resolved) == nil {
		doc.head = resolved
	}
	return doc, true
}

// maxExpanded is how much a document may grow by its aliases, in octets.
const maxExpanded = 4 << 20

var errAliases = fmt.Errorf("its aliases expand to more than %d MiB; write the values out", maxExpanded>>20)

// checkAliases fails if the aliases of a document expand to more than maxExpanded: few
// aliases of aliases could fill any memory.
func checkAliases(tree *yaml.Node) error {
	sizes := make(map[*yaml.Node]int)
	if sizeOf(tree, sizes)-sizeOf(tree, nil) > maxExpanded {
		return errAliases
	}
	return nil
}

// sizeOf returns about how many octets the value of a node takes in JSON, at least a number
// for each node. It follows aliases if sizes is not nil, which has the sizes of the nodes
// with an anchor; a size is very large if the node contains itself.
func sizeOf(n *yaml.Node, sizes map[*yaml.Node]int) int {
	const each, tooLarge = 16, 1 << 40
	if n.Kind == yaml.AliasNode && sizes != nil {
		n = n.Alias
	}
	if size, known := sizes[n]; known {
		return size
	}
	if n.Anchor != "" && sizes != nil {
		sizes[n] = tooLarge // until it is known
	}
	size := each + len(n.Value)
	for _, c := range n.Content {
		size = min(size+sizeOf(c, sizes), tooLarge)
	}
	if n.Anchor != "" && sizes != nil {
		sizes[n] = size
	}
	return size
}

// firstLine returns how many lines precede the content of chunk: blank lines,
// comments, directives and document markers; -1 when there is no content.
func firstLine(chunk []byte) int {
	for i, l := range bytes.Split(chunk, []byte("\n")) {
		text := bytes.TrimSpace(l)
		if len(text) > 0 && text[0] != '#' && l[0] != '%' && !bareMarker.Match(l) {
			return i
		}
	}
	return -1
}

// shiftLines adds to the line numbers of a document, and turns scalars that look
// like dates into strings, as in JSON.
func shiftLines(n *yaml.Node, by int) {
	n.Line += by
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, c := range n.Content {
		shiftLines(c, by)
	}
}

// plainValue converts a decoded YAML value for JSON, in which keys are strings.
func plainValue(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			plain, err := plainValue(e)
			if err != nil {
				return nil, err
			}
			v[k] = plain
		}
		return v, nil
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			plain, err := plainValue(e)
			if err != nil {
				return nil, err
			}
			switch k.(type) {
			case string, int, bool, float64:
				m[fmt.Sprint(k)] = plain
			default:
				return nil, fmt.Errorf("key %v is not a string", k)
			}
		}
		return m, nil
	case []any:
		for i, e := range v {
			plain, err := plainValue(e)
			if err != nil {
				return nil, err
			}
			v[i] = plain
		}
	}
	return v, nil
}

func headOf(n *yaml.Node) head {
	scalar := func(path ...string) string {
		at := n
		for _, key := range path {
			if at = mapValue(at, key); at == nil {
				return ""
			}
		}
		return at.Value
	}
	meta := headMeta{scalar("metadata", "namespace"), scalar("metadata", "name")}
	return head{scalar("apiVersion"), scalar("kind"), meta}
}

// mapValue returns the value at key of a mapping, or nil.
func mapValue(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// path is the path of a field: keys, and indexes in brackets.
type path []string

var pathStep = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// parsePath parses a path such as spec.ports[0].name.
func parsePath(s string) path { return pathStep.FindAllString(s, -1) }

// String returns the path as in the API server's errors.
func (p path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch {
		case strings.HasPrefix(step, "["):
		case strings.Contains(step, "."):
			step = "[" + step + "]"
		case b.Len() > 0:
			b.WriteByte('.')
		}
		b.WriteString(step)
	}
	return b.String()
}

// itemOf returns the number of the item at the path, if it is one whose line is known.
func (d *document) itemOf(p path) (i int, ok bool) {
	if len(p) != len(path{"items", "[0]"}) || p[0] != "items" {
		return 0, false
	}
	i, err := strconv.Atoi(strings.Trim(p[1], "[]"))
	return i, err == nil && i < len(d.items)
}

// lineOf returns the line of the field at the path, or of the nearest enclosing
// field that is present.
func (d *document) lineOf(p path) int {
	if len(p) == 0 {
		return d.line
	}
	if i, ok := d.itemOf(p); ok {
		return d.items[i]
	}
	if d.tree == nil {
		text, first := d.source, d.first
		if text == nil {
			text, first = d.json, d.line
		}
		var root yaml.Node
		if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
			return d.line
		}
		d.tree = root.Content[0]
		shiftLines(d.tree, first-1)
	}
	at, line := d.tree, d.line
	for _, step := range p {
		if at.Kind == yaml.AliasNode {
			at = at.Alias
		}
		key := strings.Trim(step, "[]")
		i, err := strconv.Atoi(key)
		switch {
		case at.Kind == yaml.SequenceNode && err == nil && i < len(at.Content):
			at = at.Content[i]
		case mapValue(at, key) != nil:
			for j := 0; j+1 < len(at.Content); j += 2 {
				if at.Content[j].Value == key {
					line = at.Content[j].Line
				}
			}
			at = mapValue(at, key)
			continue
		default:
			return line
		}
		line = at.Line
	}
	return line
}

// pathAt returns the path of the value that ends at or spans offset in raw.
func pathAt(raw []byte, offset int64) path {
	type level struct {
		array bool
		index int
		key   string
		isKey bool // the next string is a key
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := dec.Token()
		if err != nil {
			break
		}
		top := len(stack) - 1
		if s, ok := token.(string); ok && top >= 0 && !stack[top].array && stack[top].isKey {
			stack[top].key, stack[top].isKey = s, false
			continue
		}
		delim, _ := token.(json.Delim)
		if delim == '{' || delim == '[' {
			if dec.InputOffset() >= offset {
				break
			}
			stack = append(stack, level{array: delim == '[', isKey: delim == '{'})
			continue
		}
		if dec.InputOffset() >= offset {
			break
		}
		if delim == '}' || delim == ']' {
			stack = stack[:top]
			top--
		}
		if top >= 0 {
			stack[top].index++
			stack[top].isKey = true
		}
	}
	var p path
	for _, l := range stack {
		if l.array {
			p = append(p, fmt.Sprintf("[%d]", l.index))
		} else {
			p = append(p, l.key)
		}
	}
	return p
}
