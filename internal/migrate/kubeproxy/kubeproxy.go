// Package kubeproxy translates the configuration file of kube-proxy, a KubeProxyConfiguration,
// into the settings of the service proxy. It notes every field that is set and has no effect,
// or another one.
//
// It follows kubeproxy.config.k8s.io/v1alpha1 of Kubernetes 1.36 with its defaults
// (Kubernetes, "kube-proxy Configuration (v1alpha1)"; k8s.io/kube-proxy/config/v1alpha1).
//
//	text ─► file.go: Configuration ─► translate.go ─► Config
//	                 fields.go: what becomes of a field └► Notes
package kubeproxy

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/migrate"
)

const (
	group      = "kubeproxy.config.k8s.io"
	apiVersion = group + "/v1alpha1"
	kind       = "KubeProxyConfiguration"
)

// Is reports whether a text is a configuration of kube-proxy, of any version.
func Is(text []byte) bool {
	h, ok := headOf(text)
	return ok && (h.Kind == kind || strings.HasPrefix(h.APIVersion, group+"/"))
}

// head is what kind of object a file is.
type head struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
}

// headOf returns the head of a text, and reports whether the text is YAML.
func headOf(text []byte) (h head, ok bool) {
	err := yaml.Unmarshal(text, &h)
	return h, err == nil
}

// Parse translates the text of a file. Fields that the file lacks have kube-proxy's defaults.
// It returns an error, with the file and the line, if a field is unknown, invalid, or asks for
// what cannot be had; several are config.Errors.
func Parse(path string, text []byte) (*migrate.Translation, error) {
	t := &translator{path: path, given: defaults(), fields: make(map[string]string)}
	if h, ok := headOf(text); ok && h.Kind == "ConfigMap" {
		return nil, fmt.Errorf("config %s: it is a ConfigMap; give the text of its key config.conf", path)
	}
	t.Config, t.Origins = config.Default(), make(map[string]string)
	var wrong error
	if t.doc, wrong = config.Decode(path, text, &t.given); t.doc == nil {
		return nil, wrong
	}
	errs := []error{wrong, t.translate()}
	t.noteUnused()
	for _, err := range config.Flat(t.Config.Validate()) {
		errs = append(errs, t.ofField(err))
	}
	if err := t.doc.Locate(errors.Join(errs...)); err != nil {
		return nil, err
	}
	return &t.Translation, nil
}

// translator has the state of a translation.
type translator struct {
	migrate.Translation
	path   string
	given  configuration
	doc    *config.Document
	fields map[string]string // the fields that settings come from, by key
}

// note adds a note about a field.
func (t *translator) note(k migrate.NoteKind, field, text string) {
	t.Notes = append(t.Notes, migrate.Note{File: t.path, Line: t.doc.Line(field), Directive: field, Kind: k, Text: text})
}

// ofField returns the error in a setting as one in the field that it comes from.
func (t *translator) ofField(err error) error {
	var bad *key.Error
	if !errors.As(err, &bad) || t.fields[bad.Path] == "" {
		return err
	}
	return &key.Error{Path: t.fields[bad.Path], Item: bad.Item, Err: bad.Err}
}
