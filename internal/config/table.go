package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
)

// field returns the value of a path. If the path contains a list, field returns the
// list.
func (c *Config) field(path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() != reflect.Struct {
			break
		}
		for f, of := range v.Fields() {
			if f.Tag.Get("yaml") == name {
				v = of
				break
			}
		}
	}
	return v
}

// typeOf returns the Go type of a path. For a list of sections it is the type of the
// items.
func typeOf(path string) reflect.Type {
	t := reflect.TypeFor[Config]()
	for name := range strings.SplitSeq(path, ".") {
		if t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		for f := range t.Fields() {
			if f.Tag.Get("yaml") == name {
				t = f.Type
				break
			}
		}
	}
	return t
}

// TypeName returns the type of a key in words.
func TypeName(path string) string { return typeName(typeOf(path)) }

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[key.Duration]():
		return "duration"
	case t == reflect.TypeFor[key.Size]():
		return "size"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "list of sections"
	case t.Kind() == reflect.Slice:
		return "list of text"
	case t.Kind() == reflect.Struct:
		return "section"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "number"
	}
	return "text"
}

// DefaultText returns the default of a key as the file writes it; "" if the path
// contains a list of sections.
func DefaultText(path string) string {
	c := Default()
	for at := path; ; at = key.Section(at) {
		section := key.Section(at)
		if section == "" {
			break
		}
		if typeOf(section).Kind() == reflect.Slice {
			return ""
		}
	}
	return text(c.field(path))
}

// text returns a value as the file writes it.
func text(v reflect.Value) string {
	if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		b, _ := m.MarshalText() // never fails
		return string(b)
	}
	switch v.Kind() {
	case reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, fmt.Sprint(v.Index(i).Interface()))
		}
		return "[" + strings.Join(all, ", ") + "]"
	case reflect.String:
		if v.Len() == 0 {
			return `""`
		}
	}
	return fmt.Sprint(v.Interface())
}

// Conditions returns the conditions of restarts that hold for a process that started with
// these settings, and those given.
func (c *Config) Conditions(more ...key.Condition) []key.Condition {
	if c.Manifests == "" {
		more = append(more, key.WithAPI)
	}
	if c.Simulate.Enabled {
		more = append(more, key.WithSimulation)
	}
	return more
}

// Freeze returns c, with the values of start for keys that take effect only at the next
// start, and the paths of those keys that differ.
func (c Config) Freeze(start *Config, conditions []key.Condition) (frozen Config, waiting []string) {
	holds := func(k key.Condition) bool { return slices.Contains(conditions, k) }
	table := Keys()
	lists := make(map[string]bool) // lists of sections, which are compared as a whole
	for i := range table {
		k := &table[i]
		t := typeOf(k.Path)
		if t.Kind() == reflect.Struct || lists[key.Section(k.Path)] {
			continue
		}
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			lists[k.Path] = true
		}
		if !k.NeedsRestart(holds) {
			continue
		}
		now, first := c.field(k.Path), start.field(k.Path)
		if !reflect.DeepEqual(now.Interface(), first.Interface()) {
			now.Set(first)
			waiting = append(waiting, k.Path)
		}
	}
	return c, waiting
}

// checkKeys checks the allowed values and bounds in the table. Its error joins a *key.Error for each
// key.
func (c *Config) checkKeys() error {
	table := Keys()
	var errs []error
	for i := range table {
		k := &table[i]
		if len(k.Values) == 0 && k.Min == "" && k.Max == "" || DefaultText(k.Path) == "" {
			continue
		}
		if err := checkKey(k, c.field(k.Path)); err != nil {
			errs = append(errs, key.Errorf(k.Path, "%w", err))
		}
	}
	return errors.Join(errs...)
}

func checkKey(k *key.Key, v reflect.Value) error {
	if len(k.Values) > 0 {
		if !slices.Contains(k.Values, v.String()) {
			last := len(k.Values) - 1
			return fmt.Errorf("%q is not %s or %s", v.String(), strings.Join(k.Values[:last], ", "), k.Values[last])
		}
		return nil
	}
	least, hasLeast := bound(v.Type(), k.Min)
	most, hasMost := bound(v.Type(), k.Max)
	switch n := v.Int(); {
	case (!hasLeast || n >= least) && (!hasMost || n <= most):
		return nil
	case hasLeast && hasMost:
		return fmt.Errorf("%s is not between %s and %s", text(v), k.Min, k.Max)
	case hasLeast:
		return fmt.Errorf("%s is less than %s", text(v), k.Min)
	default:
		return fmt.Errorf("%s is more than %s", text(v), k.Max)
	}
}

// bound parses a bound of values of type t.
func bound(t reflect.Type, text string) (n int64, ok bool) {
	if text == "" {
		return 0, false
	}
	switch t {
	case reflect.TypeFor[key.Duration]():
		d, err := time.ParseDuration(text)
		return int64(d), err == nil
	case reflect.TypeFor[key.Size]():
		var z key.Size
		err := z.UnmarshalText([]byte(text))
		return int64(z), err == nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// Explain returns the description of a key in lines, and for a section its keys.
func Explain(k *key.Key) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-13s%s\n", name+":", value)
		}
	}
	line("KEY", k.Path)
	line("TYPE", TypeName(k.Path))
	children := Keys().Children(k.Path)
	if len(children) == 0 {
		line("DEFAULT", DefaultText(k.Path))
		line("VALUES", k.RangeText())
		line("RESTART", k.RestartText())
	}
	line("DESCRIPTION", k.Description)
	if len(children) > 0 {
		b.WriteString("\nKEYS:\n")
	}
	for _, c := range children {
		fmt.Fprintf(&b, "  %-22s %-17s %s\n", key.Name(c.Path), "<"+TypeName(c.Path)+">", c.Description)
	}
	return b.String()
}

// Schema returns the JSON schema of the file, for editors.
func Schema() map[string]any {
	s := schemaOf(Keys(), "", reflect.TypeFor[Config]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Portolan configuration"
	return s
}

func schemaOf(table key.Table, path string, t reflect.Type) map[string]any {
	s := map[string]any{}
	k, known := table.Find(path)
	if known {
		s["description"] = k.Description
	}
	switch {
	case t.Kind() == reflect.Struct:
		properties := map[string]any{}
		for _, c := range table.Children(path) {
			properties[key.Name(c.Path)] = schemaOf(table, c.Path, typeOf(c.Path))
		}
		s["type"], s["properties"], s["additionalProperties"] = []string{"object", "null"}, properties, false
	case t.Kind() == reflect.Slice:
		items := map[string]any{"type": "string"}
		if t.Elem().Kind() == reflect.Struct {
			items = schemaOf(table, path, t.Elem())
			delete(items, "description")
		}
		s["type"], s["items"] = []string{"array", "null"}, items
	case t.Kind() == reflect.Bool:
		s["type"] = []string{"boolean", "null"}
	case t == reflect.TypeFor[key.Size]():
		s["type"], s["pattern"] = []string{"string", "integer", "null"}, "^[0-9]+([KMG]i)?$"
	case t == reflect.TypeFor[key.Duration]():
		s["type"], s["pattern"] = []string{"string", "null"}, "^-?([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$"
	case t.Kind() == reflect.Int:
		s["type"] = []string{"integer", "null"}
		if n, ok := bound(t, k.Min); ok {
			s["minimum"] = n
		}
		if n, ok := bound(t, k.Max); ok {
			s["maximum"] = n
		}
	case known && len(k.Values) > 0:
		s["enum"] = append(slices.Clone(k.Values), "")
		if d := DefaultText(path); d != "" {
			s["enum"] = k.Values
		}
	default:
		s["type"] = []string{"string", "integer", "null"}
	}
	return s
}
