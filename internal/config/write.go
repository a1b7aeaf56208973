package config

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Text returns c as a file, with the keys whose values differ from the defaults.
// comments has comments by key. The comment of a value, such as forward.maxInFlight,
// follows the value; the comment of a list item, such as forward.routes[0], precedes
// the item.
func (c *Config) Text(comments map[string]string) ([]byte, error) {
	standard := Default()
	root, err := differing(reflect.ValueOf(c).Elem(), reflect.ValueOf(&standard).Elem(), "", comments)
	if err != nil || root == nil {
		return []byte("# the defaults\n"), err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// Sections returns sections with all their keys, as encoding/json writes them.
func (c *Config) Sections(names ...string) (map[string]any, error) {
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	all := make(map[string]any)
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return !slices.Contains(names, name) })
	return all, nil
}

// differing returns the value of a key, or nil if it equals the standard value.
func differing(v, standard reflect.Value, key string, comments map[string]string) (n *yaml.Node, err error) {
	switch {
	case v.Kind() == reflect.Struct:
		return differingFields(v, standard, key, comments)
	case v.Kind() == reflect.Slice && v.Len() == 0 && standard.Len() == 0:
		return nil, nil
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		return items(v, key, comments)
	case reflect.DeepEqual(v.Interface(), standard.Interface()):
		return nil, nil
	}
	n = new(yaml.Node)
	if err := n.Encode(v.Interface()); err != nil {
		return nil, fmt.Errorf("config: %s: %w", key, err)
	}
	if n.Kind == yaml.SequenceNode {
		n.Style = yaml.FlowStyle
	}
	n.LineComment = comments[key]
	return n, nil
}

func differingFields(v, standard reflect.Value, key string, comments map[string]string) (*yaml.Node, error) {
	section := &yaml.Node{Kind: yaml.MappingNode}
	if key != "" {
		key += "."
	}
	for f, field := range v.Fields() {
		name := f.Tag.Get("yaml")
		value, err := differing(field, standard.FieldByIndex(f.Index), key+name, comments)
		if err != nil {
			return nil, err
		}
		if value != nil {
			section.Content = append(section.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
		}
	}
	if len(section.Content) == 0 {
		return nil, nil
	}
	return section, nil
}

// items returns the items of a list of sections, without their unset keys.
func items(v reflect.Value, key string, comments map[string]string) (*yaml.Node, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.Len() {
		key := fmt.Sprintf("%s[%d]", key, i)
		item, err := differing(v.Index(i), reflect.Zero(v.Type().Elem()), key, nil)
		if err != nil {
			return nil, err
		}
		if item == nil {
			item = &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		}
		item.HeadComment = comments[key]
		list.Content = append(list.Content, item)
	}
	return list, nil
}
