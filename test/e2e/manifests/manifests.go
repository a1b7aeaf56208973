// Package manifests decodes manifests, for API servers that tests put them to.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Object is an API object as a manifest spells it.
type Object = *unstructured.Unstructured

// Read decodes all documents of the files that are manifests by their
// names. Lists are taken apart.
func Read(files map[string][]byte) (all []Object, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			continue
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(bytes.NewReader(files[name])), 4096)
		for {
			var content map[string]any
			if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(content) > 0 {
				all = append(all, withoutList(&unstructured.Unstructured{Object: content})...)
			}
		}
	}
	return all, nil
}

func withoutList(o Object) (items []Object) {
	if !o.IsList() {
		return []Object{o}
	}
	_ = o.EachListItem(func(item runtime.Object) error {
		items = append(items, item.(Object))
		return nil
	})
	return items
}
