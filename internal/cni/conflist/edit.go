package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cni/plugin"
)

// document is the text of a network configuration, or of a list of them (CNI specification, section 1), of
// which nothing but the plugin's own entry changes.
type document struct {
	text []byte
	// fields are the members of the object, but for plugins.
	fields map[string]json.RawMessage
	// isList says that there is a member plugins, whose elements are plugins, between [ and ].
	isList  bool
	open    int // offset after [
	plugins []element
}

// element is a plugin in a document.
type element struct {
	begin, end int    // offsets in the text
	kind       string // its type
}

// parse reads a document. It refuses what a runtime would take in one of several ways.
func parse(text []byte) (*document, error) {
	d, err := parseObject(text)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("is empty or cut off")
	}
	return d, err
}

func parseObject(text []byte) (*document, error) {
	d := &document{text: text, fields: make(map[string]json.RawMessage)}
	in := json.NewDecoder(bytes.NewReader(text))
	if err := expect(in, json.Delim('{')); err != nil {
		return nil, err
	}
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string) // a name is a string
		if _, ok := d.fields[key]; ok || key == "plugins" && d.isList {
			return nil, fmt.Errorf("has %q twice", key)
		}
		if key == "plugins" {
			err = d.parsePlugins(in)
		} else {
			var value json.RawMessage
			err = in.Decode(&value)
			d.fields[key] = value
		}
		if err != nil {
			return nil, err
		}
	}
	if err := expect(in, json.Delim('}')); err != nil {
		return nil, err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has something after its object")
	}
	return d, nil
}

func (d *document) parsePlugins(in *json.Decoder) error {
	if err := expect(in, json.Delim('[')); err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	d.isList, d.open = true, int(in.InputOffset())
	for in.More() {
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return err
		}
		var p struct{ Type string }
		if err := json.Unmarshal(value, &p); err != nil || p.Type == "" {
			return errors.New("has a plugin without type")
		}
		end := int(in.InputOffset())
		d.plugins = append(d.plugins, element{end - len(value), end, p.Type})
	}
	return expect(in, json.Delim(']'))
}

// expect reads a delimiter.
func expect(in *json.Decoder, want json.Delim) error {
	token, err := in.Token()
	if err == nil && token != want {
		err = fmt.Errorf("has %v instead of %v", token, want)
	}
	return err
}

// check returns an error if the plugin cannot be in the document.
func (d *document) check() error {
	var version, name string
	var versions []string
	for key, into := range map[string]any{"cniVersion": &version, "cniVersions": &versions, "name": &name} {
		if value, ok := d.fields[key]; ok {
			if err := json.Unmarshal(value, into); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	known := func(v string) bool { return slices.Contains(plugin.Versions(), v) }
	switch {
	case name == "":
		return errors.New("has no name")
	case !known(version) && !slices.ContainsFunc(versions, known):
		return fmt.Errorf("has cniVersion %q, and the plugin speaks %s", version, strings.Join(plugin.Versions(), ", "))
	case d.isList && !slices.ContainsFunc(d.plugins, func(e element) bool { return e.kind != plugin.Type }):
		return errors.New("has no plugins")
	case !d.isList && len(d.fields["type"]) == 0:
		return errors.New("has neither type nor plugins")
	}
	return nil
}

// kinds returns the types of the plugins, but for the own one.
func (d *document) kinds() (kinds []string) {
	for _, e := range d.plugins {
		if e.kind != plugin.Type {
			kinds = append(kinds, e.kind)
		}
	}
	if !d.isList {
		var kind string
		_ = json.Unmarshal(d.fields["type"], &kind)
		kinds = append(kinds, kind)
	}
	return kinds
}

// has reports whether the plugin is in the list.
func (d *document) has() bool {
	return slices.ContainsFunc(d.plugins, func(e element) bool { return e.kind == plugin.Type })
}

// without returns the text without the plugin. What add has added leaves no trace.
func (d *document) without() []byte {
	own := func(e element) bool { return e.kind == plugin.Type }
	first := slices.IndexFunc(d.plugins, func(e element) bool { return !own(e) })
	if first < 0 {
		return d.text // there is nothing to leave it to
	}
	text := slices.Clone(d.text)
	for i := len(d.plugins) - 1; i > first; i-- {
		if own(d.plugins[i]) {
			text = slices.Delete(text, d.plugins[i-1].end, d.plugins[i].end)
		}
	}
	return slices.Delete(text, d.plugins[0].begin, d.plugins[first].begin)
}

// with returns the text of a list with the plugin at its end. It is the same text if the plugin is there, once
// and with this entry, behind others.
func (d *document) with(entry []byte) ([]byte, error) {
	own := 0
	same := false
	for i, e := range d.plugins {
		if e.kind == plugin.Type {
			own++
			same = i > 0 && equalJSON(d.text[e.begin:e.end], entry)
		}
	}
	if own == 1 && same {
		return d.text, nil
	}
	d, err := parse(d.without())
	if err != nil {
		return nil, err
	}
	// It is on a line of its own if the one before is.
	last, before := d.plugins[len(d.plugins)-1], d.open
	if len(d.plugins) > 1 {
		before = d.plugins[len(d.plugins)-2].end
	}
	gap := d.text[before:last.begin]
	gap = gap[bytes.IndexByte(gap, ',')+1:]
	return slices.Insert(slices.Clone(d.text), last.end, slices.Concat([]byte(","), gap, entry)...), nil
}

func equalJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// list returns a list of the document, which is none, and the plugin.
func (d *document) list(entry []byte) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{\n")
	for _, key := range []string{"cniVersion", "cniVersions", "name"} {
		if value, ok := d.fields[key]; ok {
			fmt.Fprintf(&b, "  %q: %s,\n", key, value)
		}
	}
	fmt.Fprintf(&b, "  \"plugins\": [\n    %s\n  ]\n}\n", bytes.TrimSpace(d.text))
	l, err := parse(b.Bytes())
	if err != nil {
		return nil, err
	}
	return l.with(entry)
}
