package suite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/support/suggest"
	"portolan.dev/portolan/internal/support/yamlerr"
)

// Error is what is wrong with a file, and where.
type Error struct {
	File string
	Line int // from 1; 0 if it is not known
	Err  error
}

// Error returns the error with its place.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Err)
}

// Unwrap returns the error without its place.
func (e *Error) Unwrap() error { return e.Err }

// Read reads a suite from the text of a YAML file: a mapping with the list tests, whose items have the fields name,
// from, to, method, headers, expect and by (docs/test.md). Its errors are *Error, joined.
func Read(file string, text []byte) (*Suite, error) {
	r := &reader{file: file}
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, &Error{file, 0, errors.New(`no tests; a suite begins with "tests:"`)}
	case err != nil:
		line, err := yamlerr.Split(err)
		return nil, &Error{file, line, err}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.fail(&root, "a second document, or what follows is no YAML; a file has one suite")
	}
	s := &Suite{File: file}
	r.fields(root.Content[0], "", map[string]func(*yaml.Node){
		"tests": func(n *yaml.Node) {
			for _, item := range r.list(n, "tests") {
				s.Tests = append(s.Tests, r.test(item))
			}
		},
	})
	if len(s.Tests) == 0 && len(r.errs) == 0 {
		r.fail(root.Content[0], "no tests")
	}
	return s, errors.Join(r.errs...)
}

// reader collects the errors of a file.
type reader struct {
	file string
	errs []error
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, &Error{r.file, n.Line, fmt.Errorf(format, args...)})
}

// fields reads a mapping with the given fields.
func (r *reader) fields(n *yaml.Node, path string, read map[string]func(*yaml.Node)) {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%snot a mapping of keys to values", prefix(path))
		return
	}
	known := make([]string, 0, len(read))
	for name := range read {
		known = append(known, name)
	}
	slices.Sort(known)
	seen := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		set, ok := read[key.Value]
		switch {
		case !ok:
			hint := "; there are " + strings.Join(known, ", ")
			if near := suggest.Closest(key.Value, known); near != "" {
				hint = "; did you mean " + near + "?"
			}
			r.fail(key, "%sunknown key %q%s", prefix(path), key.Value, hint)
		case seen[key.Value]:
			r.fail(key, "%skey %s given twice", prefix(path), key.Value)
		default:
			set(resolved(value))
		}
		seen[key.Value] = true
	}
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// resolved returns what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// list returns the items of a list.
func (r *reader) list(n *yaml.Node, path string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		r.fail(n, "%s: not a list", path)
		return nil
	}
	return n.Content
}

// word reads text.
func (r *reader) word(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.Value == "" {
		r.fail(n, "%s: not text", path)
		return ""
	}
	return n.Value
}

// words reads text, or a list of texts.
func (r *reader) words(n *yaml.Node, path string) (all []string) {
	if n.Kind != yaml.SequenceNode {
		return []string{r.word(n, path)}
	}
	for _, item := range n.Content {
		all = append(all, r.word(resolved(item), path))
	}
	if len(all) == 0 {
		r.fail(n, "%s: an empty list", path)
	}
	return all
}

// test reads an item of tests.
func (r *reader) test(n *yaml.Node) Test {
	t, before := Test{File: r.file, Line: n.Line}, len(r.errs)
	at := make(map[string]*yaml.Node)
	text := func(path string, into *string) func(*yaml.Node) {
		return func(n *yaml.Node) { *into = r.word(n, path) }
	}
	r.fields(n, "", map[string]func(*yaml.Node){
		"name":    text("name", &t.Name),
		"from":    func(n *yaml.Node) { t.From, at["from"] = r.words(n, "from"), n },
		"to":      func(n *yaml.Node) { t.To, at["to"] = r.words(n, "to"), n },
		"method":  text("method", &t.Method),
		"headers": func(n *yaml.Node) { t.Headers = r.headers(n) },
		"expect":  func(n *yaml.Node) { t.Expect = r.expect(n) },
		"by":      func(n *yaml.Node) { t.By, at["by"] = r.by(n), n },
	})
	if len(r.errs) > before {
		return t // what is missing may have been meant to be there
	}
	for _, f := range []struct {
		name    string
		missing bool
	}{{"from", len(t.From) == 0}, {"to", len(t.To) == 0}, {"expect", t.Expect.Outcome == ""}} {
		if f.missing {
			r.fail(n, "%s is missing", f.name)
		}
	}
	if len(r.errs) == before {
		r.agree(&t, at)
	}
	return t
}

// headers reads a mapping of names to values, as "NAME: VALUE".
func (r *reader) headers(n *yaml.Node) (all []string) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "headers: not a mapping of names to values")
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		all = append(all, n.Content[i].Value+": "+r.word(resolved(n.Content[i+1]), "headers."+n.Content[i].Value))
	}
	return all
}

// outcomes are those that may stand alone.
var outcomes = []string{
	string(Resolves), string(Unresolved), string(Connects), string(Refused), string(Dropped), string(Backend),
}

// expect reads an outcome: a word, or a mapping of one key to its values.
func (r *reader) expect(n *yaml.Node) (e Expect) {
	if n.Kind == yaml.ScalarNode {
		e.Outcome = Outcome(n.Value)
		if !slices.Contains(outcomes, n.Value) {
			hint := ""
			if near := suggest.Closest(n.Value, outcomes); near != "" {
				hint = "; did you mean " + near + "?"
			}
			r.fail(n, "expect: %q is not %s, nor a mapping such as {status: 404}%s", n.Value, strings.Join(outcomes, ", "), hint)
		}
		return e
	}
	values := func(o Outcome) func(*yaml.Node) {
		return func(n *yaml.Node) { e.Outcome, e.Values = o, r.words(n, "expect."+string(o)) }
	}
	r.fields(n, "expect", map[string]func(*yaml.Node){
		string(Resolves): values(Resolves),
		string(Connects): values(Connects),
		string(Backend):  values(Backend),
		string(Redirect): func(n *yaml.Node) { e.Outcome, e.Values = Redirect, []string{r.word(n, "expect.redirect")} },
		string(Status): func(n *yaml.Node) {
			e.Outcome = Status
			var err error
			if e.Status, err = strconv.Atoi(n.Value); err != nil || e.Status < 100 || e.Status > 599 {
				r.fail(n, "expect.status: %q is not a status from 100 to 599", n.Value)
			}
		},
	})
	if resolved(n).Kind == yaml.MappingNode && len(n.Content) != 2 {
		r.fail(n, "expect: give one outcome")
	}
	return e
}
