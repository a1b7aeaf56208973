package config

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/support/suggest"
	"portolan.dev/portolan/internal/support/yamlerr"
)

// Read reads a configuration file over the defaults. Its errors name the file and, if
// known, the line.
func Read(path string) (Config, error) {
	data, err := ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	return Parse(path, data)
}

// Parse parses the text of a configuration file over the defaults.
func Parse(path string, data []byte) (Config, error) {
	c := Default()
	doc, err := Decode(path, data, &c)
	if err == nil {
		err = doc.Locate(c.Validate())
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// Document is the text of a file, to find keys in.
type Document struct {
	path string
	root *yaml.Node // nil if the file is empty
}

// Decode decodes the text of a YAML file with one document over a pointer to a struct, whose
// fields have the tag yaml. Unknown keys, wrong types and keys given twice are errors, which
// name the file and the line; several are Errors. A key without a value, or with an error, leaves its
// field as it is. The document is nil if the text is no YAML.
func Decode(path string, data []byte, into any) (*Document, error) {
	d := &Document{path: path}
	var err error
	if d.root, err = parse(data); err == nil && d.root != nil {
		err = fill(reflect.ValueOf(into).Elem(), d.root, "")
	}
	if err != nil && d.root == nil {
		return nil, d.Locate(err)
	}
	return d, d.Locate(err)
}

// Locate returns an error with the file and, if it is known or the error is a *key.Error, the
// line; nil for nil. Several errors, joined, become Errors. One that Locate returned stays as it is.
func (d *Document) Locate(err error) error {
	var all Errors
	for _, each := range Flat(err) {
		all = append(all, d.locate(each))
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	lineOf := func(err error) int { at, _ := errors.AsType[*locatedError](err); return at.line }
	slices.SortStableFunc(all, func(a, b error) int { return cmp.Compare(lineOf(a), lineOf(b)) })
	return all
}

func (d *Document) locate(err error) error {
	if done, ok := errors.AsType[*locatedError](err); ok {
		return done
	}
	if at, ok := errors.AsType[*lineError](err); ok {
		return &locatedError{d.path, at.line, at.err}
	}
	if bad, ok := errors.AsType[*key.Error](err); ok && d.root != nil {
		return &locatedError{d.path, lineOf(d.root, bad), err}
	}
	return &locatedError{d.path, 0, err}
}

// Flat returns the errors that are joined in err; none for nil.
func Flat(err error) (all []error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			all = append(all, Flat(each)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Errors are several errors of a file, in the order of its lines.
type Errors []error

// Error returns the errors in a line.
func (e Errors) Error() string {
	var texts []string
	for _, err := range e {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

// locatedError is an error with the file and the line, 0 if that is not known.
type locatedError struct {
	path string
	line int
	err  error
}

func (e *locatedError) Error() string {
	if e.line == 0 {
		return fmt.Sprintf("config %s: %s", e.path, e.err)
	}
	return fmt.Sprintf("config %s:%d: %s", e.path, e.line, e.err)
}
func (e *locatedError) Unwrap() error { return e.err }

// Line returns the line of a key or, if the file lacks it, of the nearest section around it.
func (d *Document) Line(path string) int {
	if d.root == nil {
		return 1
	}
	return lineOf(d.root, &key.Error{Path: path, Item: -1})
}

// lineError is an error on a line of the file.
type lineError struct {
	line int // from 1
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

func errorAt(n *yaml.Node, format string, args ...any) error {
	return &lineError{n.Line, fmt.Errorf(format, args...)}
}

// parse returns the only document of a file; nil if the file is empty.
func parse(data []byte) (*yaml.Node, error) {
	var root *yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for first := true; ; first = false {
		var doc yaml.Node
		err := dec.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF):
			return root, nil
		case err != nil:
			return nil, syntaxError(err)
		case isNull(doc.Content[0]):
		case !first:
			return nil, errorAt(doc.Content[0], "a second document; there must be one")
		default:
			root = doc.Content[0]
		}
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// syntaxError returns an error of the YAML library with its line.
func syntaxError(err error) error {
	line, err := yamlerr.Split(err)
	if line == 0 {
		return err
	}
	return &lineError{line, err}
}

// fill sets v to the value n. It rejects unknown keys and wrong types. path is the key
// of v.
func fill(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind == yaml.AliasNode {
		anchored := *n.Alias
		anchored.Line = n.Line // the line of the alias
		n = &anchored
	}
	if isNull(n) {
		return nil
	}
	switch {
	case v.Kind() == reflect.Struct:
		return fillSection(v, n, path)
	case v.Kind() == reflect.Slice:
		return fillList(v, n, path)
	case v.Kind() == reflect.Map:
		return fillMap(v, n, path)
	}
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok && n.Kind == yaml.ScalarNode {
		if err := text.UnmarshalText([]byte(n.Value)); err != nil {
			return errorAt(n, "%s: %w", path, err)
		}
		return nil
	}
	return fillScalar(v, n, path)
}

func fillScalar(v reflect.Value, n *yaml.Node, path string) error {
	wrong := func(want string) error { return errorAt(n, "%s: %s is not %s", path, describe(n), want) }
	switch v.Kind() {
	case reflect.Int:
		if n.ShortTag() != "!!int" || n.Decode(v.Addr().Interface()) != nil {
			return wrong("a whole number")
		}
	case reflect.Bool:
		if n.Decode(v.Addr().Interface()) != nil {
			return wrong("true or false")
		}
	default:
		if n.Kind != yaml.ScalarNode {
			return wrong("text")
		}
		v.SetString(n.Value)
	}
	return nil
}

// describe describes n's value in words.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	}
	return strconv.Quote(n.Value)
}

func fillList(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind != yaml.SequenceNode { // the value is not printed because it may be a secret
		return errorAt(n, "%s: not a list; one is written [ONE, TWO]", path)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	var errs []error
	for i, item := range n.Content {
		if isNull(item) {
			errs = append(errs, errorAt(item, "%s: an item without a value", path))
			continue
		}
		errs = append(errs, fill(v.Index(i), item, path))
	}
	return errors.Join(errs...)
}

// fillMap fills a map whose keys are names.
func fillMap(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind != yaml.MappingNode {
		return errorAt(n, "%s: not a mapping of keys to values", path)
	}
	v.Set(reflect.MakeMap(v.Type()))
	var errs []error
	for i := 0; i < len(n.Content); i += 2 {
		value := reflect.New(v.Type().Elem()).Elem()
		errs = append(errs, fill(value, n.Content[i+1], path+"."+n.Content[i].Value))
		v.SetMapIndex(reflect.ValueOf(n.Content[i].Value), value)
	}
	return errors.Join(errs...)
}

func fillSection(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind != yaml.MappingNode {
		if path != "" {
			path += ": "
		}
		return errorAt(n, "%snot a mapping of keys to values", path)
	}
	if path != "" {
		path += "."
	}
	seen := make(map[string]int)
	var errs []error
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			errs = append(errs, errorAt(key, "a key must be a word"))
			continue
		}
		if line, twice := seen[key.Value]; twice {
			errs = append(errs, errorAt(key, "key %s given twice, before on line %d", path+key.Value, line))
			continue
		}
		seen[key.Value] = key.Line
		field, err := fieldOf(v, key, path)
		if err == nil {
			err = fill(field, value, path+key.Value)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fieldOf returns the field of a section for a key.
func fieldOf(section reflect.Value, key *yaml.Node, path string) (reflect.Value, error) {
	hint := ""
	for f, v := range section.Fields() {
		name := f.Tag.Get("yaml")
		switch {
		case name == key.Value:
			return v, nil
		case plainKey(name) == plainKey(key.Value):
			hint = "; it is spelled " + path + name
		case path+name == dnsSection:
			hint = movedTo(v, key.Value, name)
		}
	}
	if hint == "" {
		var names []string
		for f := range section.Type().Fields() {
			names = append(names, f.Tag.Get("yaml"))
		}
		if name := suggest.Closest(key.Value, names); name != "" {
			hint = "; did you mean " + path + name + "?"
		}
	}
	return reflect.Value{}, errorAt(key, "unknown key %s%s%s", path, key.Value, hint)
}

// dnsSection is the section of the keys that were at the root in early versions.
const dnsSection = "dns"

// movedTo returns a hint for a key at the root that belongs to a section.
func movedTo(section reflect.Value, key, path string) string {
	for f := range section.Type().Fields() {
		if name := f.Tag.Get("yaml"); plainKey(name) == plainKey(key) {
			return "; it is " + path + "." + name
		}
	}
	return ""
}

// plainKey returns a key without letter case and separators, to find misspelled keys.
func plainKey(key string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(key))
}

// lineOf returns the line of the bad value or, if the file lacks it, of the nearest
// section around it.
func lineOf(root *yaml.Node, bad *key.Error) int {
	at, line := root, root.Line
	for name := range strings.SplitSeq(bad.Path, ".") {
		if at.Kind == yaml.SequenceNode && bad.Item >= 0 && bad.Item < len(at.Content) {
			at = at.Content[bad.Item]
			line = at.Line
		}
		for i := 0; i+1 < len(at.Content); i += 2 {
			if at.Kind == yaml.MappingNode && at.Content[i].Value == name {
				line, at = at.Content[i].Line, at.Content[i+1]
				break
			}
		}
		if at.Kind == yaml.AliasNode {
			at = at.Alias
		}
	}
	if at.Kind == yaml.SequenceNode && bad.Item >= 0 && bad.Item < len(at.Content) {
		line = at.Content[bad.Item].Line
	}
	if bad.Line > 0 && at.Kind == yaml.ScalarNode && at.Style&yaml.LiteralStyle != 0 {
		line = at.Line + bad.Line // the text begins below its |
	}
	return line
}
