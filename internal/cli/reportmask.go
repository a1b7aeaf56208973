package cli

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/report"
)

// masker finds the names that a report masks.
type masker struct{ clean *report.Cleaner }

// settings has the names masked that settings and flags have.
func (m masker) settings(flags *sourceFlags, settings config.Config) {
	m.clean.MaskNames()
	keys := config.Keys()
	for i := range keys {
		m.clean.Keep(keys[i].Path)
	}
	for _, domain := range settings.DNS.Zones {
		m.clean.MaskDomain(domain)
	}
	m.clean.MaskPath(flags.config)
	m.clean.MaskPath(settings.Manifests)
	m.clean.MaskPath(settings.Kubernetes.Kubeconfig)
	if text, err := settings.Text(nil); err == nil {
		m.configured(text)
	}
}

// admins has the host names masked that admin addresses have.
func (m masker) admins(addrs []string) {
	for _, addr := range addrs {
		at, err := url.Parse(addr)
		if err != nil {
			continue // an address and a port
		}
		host := at.Hostname()
		_, err = netip.ParseAddr(host)
		switch {
		case err == nil:
		case strings.Contains(host, "."):
			m.clean.MaskDomain(host)
		default:
			m.clean.MaskName(host)
		}
	}
}

// domainKeys are keys of settings whose values are domains, even if they have no dot.
var domainKeys = map[string]bool{
	"suffix": true, "zones": true, "zone": true, "name": true, "names": true, "from": true, "to": true, "origin": true,
	"multicluster": true, "searches": true,
}

// configured has the domains and paths in a file of settings masked.
func (m masker) configured(text []byte) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err == nil {
		m.setting("", &root)
	}
}

func (m masker) setting(key string, n *yaml.Node) {
	switch n.Kind {
	case yaml.ScalarNode:
		switch isPath := strings.Contains(n.Value, "/") && !strings.Contains(n.Value, "://"); {
		case isPath && len(strings.Fields(n.Value)) == 1:
			m.clean.MaskPath(n.Value)
		case domainKeys[key]:
			m.clean.MaskDomain(n.Value)
		}
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			m.setting(n.Content[i-1].Value, n.Content[i])
		}
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, child := range n.Content {
			m.setting(key, child)
		}
	}
}

// arguments has the paths in a command line masked.
func (m masker) arguments(line []byte) {
	for arg := range strings.SplitSeq(strings.ReplaceAll(string(line), "\x00", " "), " ") {
		_, value, ok := strings.Cut(arg, "=")
		if !ok {
			value = arg
		}
		if strings.ContainsAny(value, "/.") && !strings.Contains(value, "://") && strings.Trim(value, "0123456789.:/") != "" {
			m.clean.MaskPath(value)
		}
	}
}

// objects has the names of objects masked, and what they refer to and select by.
func (m masker) objects(v *cluster.View) {
	for _, kind := range cluster.Kinds() {
		for o := range v.Objects(kind) {
			m.key(o.Ref().Key)
			m.fields(reflect.ValueOf(o))
		}
	}
}

func (m masker) key(k cluster.Key) {
	m.clean.MaskName(k.Namespace)
	m.clean.MaskName(k.Name)
}

// fields has the references, labels and selectors in a value masked.
func (m masker) fields(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		m.fields(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			m.fields(v.Index(i))
		}
	case reflect.Struct:
		m.structure(v)
	}
}

func (m masker) structure(v reflect.Value) {
	for i := range v.NumField() {
		switch field, f := v.Type().Field(i), v.Field(i); {
		case f.Kind() == reflect.String && (v.Type() == typeOf[cluster.Key]() || v.Type() == typeOf[cluster.ObjectRef]()):
			if field.Name != "Kind" && field.Name != "Group" {
				m.clean.MaskName(f.String())
			}
		case f.Type() == typeOf[map[string]string]() && (field.Name == "Labels" || field.Name == "Selector"):
			for _, key := range f.MapKeys() {
				m.clean.MaskName(f.MapIndex(key).String())
			}
		case v.Type() == typeOf[cluster.Requirement]() && field.Name == "Values":
			for j := range f.Len() {
				m.clean.MaskName(f.Index(j).String())
			}
		default:
			m.fields(f)
		}
	}
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// hosts has hosts masked, which may have a wildcard.
func (m masker) hosts(hosts []string) {
	for _, host := range hosts {
		m.clean.MaskDomain(host)
	}
}

// reference is the name of an object in a message, after its kind.
var reference = regexp.MustCompile(`(?i)\b[a-z]+ ([a-z0-9][a-z0-9.-]*/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)\b`)

// messages has the names masked that messages have, such as those of objects that do not exist.
func (m masker) messages(texts ...string) {
	for _, text := range texts {
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			namespace, name, _ := strings.Cut(match[1], "/")
			m.clean.MaskName(namespace)
			m.clean.MaskName(name)
		}
	}
}

// failures has the names masked of failures that a process reports.
func (m masker) failures(text []byte) {
	var top struct{ Items []struct{ Key string } }
	if json.Unmarshal(text, &top) != nil {
		return
	}
	for _, item := range top.Items { // a domain name, HOST/PATH or NAMESPACE/NAME
		name, rest, _ := strings.Cut(item.Key, "/")
		if strings.Contains(name, ".") {
			m.clean.MaskDomain(name)
			continue
		}
		m.clean.MaskName(name)
		m.clean.MaskName(rest)
	}
}
