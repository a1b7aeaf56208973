package config_test

import (
	"reflect"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
	dns "portolan.dev/portolan/internal/dns/settings"
)

// TestKeys checks that the table has exactly the keys and sections of the file, in the
// order of the file.
func TestKeys(t *testing.T) {
	t.Parallel()
	table := config.Keys()
	if err := table.Check(); err != nil {
		t.Error(err)
	}
	want := pathsOf(reflect.TypeFor[config.Config](), "")
	var got []string
	for _, k := range table {
		got = append(got, k.Path)
	}
	for _, path := range want {
		if !slices.Contains(got, path) {
			t.Errorf("%s is not described", path)
		}
	}
	for _, path := range got {
		if !slices.Contains(want, path) {
			t.Errorf("%s is described, and no key", path)
		}
	}
}

// pathsOf returns the keys and the sections of a section.
func pathsOf(section reflect.Type, prefix string) (paths []string) {
	for f := range section.Fields() {
		path, of := prefix+f.Tag.Get("yaml"), f.Type
		paths = append(paths, path)
		if of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			paths = append(paths, pathsOf(of, path+".")...)
		}
	}
	return paths
}

// TestFreeze checks that a key that needs a restart keeps its value.
func TestFreeze(t *testing.T) {
	t.Parallel()
	start, now := config.Default(), config.Default()
	now.DNS.TTL, now.DNS.TLS.Key, now.DNS.Pods, now.DNS.Transfer.Keys = 9, "key", "insecure", []dns.TransferKey{{Name: "a"}}
	for condition, want := range map[key.Condition][]string{
		"":                 {"dns.tls.key"},
		key.WithAPI:        {"dns.pods", "dns.tls.key"},
		key.OnNode:         {"dns.tls.key", "dns.transfer.keys"},
		key.WithSimulation: {"dns.tls.key"},
	} {
		frozen, waiting := now.Freeze(&start, []key.Condition{condition})
		if !slices.Equal(waiting, want) || frozen.DNS.TLS.Key != "" || frozen.DNS.TTL != 9 {
			t.Errorf("Freeze %q: %q, key %q, TTL %d; want %q, no key, 9", condition, waiting, frozen.DNS.TLS.Key, frozen.DNS.TTL, want)
		}
	}
}
