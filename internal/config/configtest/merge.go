// Package configtest writes configuration files for tests and benchmarks.
package configtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Merge returns one configuration file with the keys of all parts. Sections in several
// parts are merged. If several parts have a value, the last one wins. Merge panics if a
// part is not YAML.
func Merge(parts ...string) string {
	root := &yaml.Node{Kind: yaml.MappingNode}
	dec := yaml.NewDecoder(strings.NewReader(strings.Join(parts, "\n---\n")))
	for {
		var part yaml.Node
		err := dec.Decode(&part)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(fmt.Sprintf("configtest: %v in %q", err, parts))
		}
		if len(part.Content) == 1 && part.Content[0].Kind == yaml.MappingNode {
			mergeSection(root, part.Content[0])
		}
	}
	for i := 1; i < len(root.Content); i += 2 {
		if root.Content[i].Kind == yaml.MappingNode {
			root.Content[i].Style = 0 // block style: one line for each key
		}
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		panic(fmt.Sprintf("configtest: %v", err))
	}
	return b.String()
}

// mergeSection merges the keys of a section into another one.
func mergeSection(into, from *yaml.Node) {
	for i := 0; i+1 < len(from.Content); i += 2 {
		key, value := from.Content[i], from.Content[i+1]
		if value.Kind == yaml.MappingNode {
			section := &yaml.Node{Kind: yaml.MappingNode, Style: value.Style}
			mergeSection(section, value)
			value = section
		}
		there := valueOf(into, key.Value)
		switch {
		case there == nil:
			into.Content = append(into.Content, key, value)
		case there.Kind == yaml.MappingNode && value.Kind == yaml.MappingNode:
			mergeSection(there, value)
		default:
			*there = *value
		}
	}
}

func valueOf(section *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(section.Content); i += 2 {
		if section.Content[i].Value == key {
			return section.Content[i+1]
		}
	}
	return nil
}
