package deploy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
)

var update = flag.Bool("update", false, "write the chart's list of keys that need a restart")

// restartKeys are the keys of a process that need a restart, and those that do not.
func restartKeys(process key.Condition) (restart, reload []string) {
	table := config.Keys()
	for i := range table {
		k := &table[i]
		section, _, _ := strings.Cut(k.Path, ".")
		own := section != "webhook" && section != "controller" && (section != "node" || process == key.OnNode)
		if !own || config.TypeName(k.Path) == "section" || inList(k.Path) {
			continue
		}
		if k.NeedsRestart(func(c key.Condition) bool { return c == process }) {
			restart = append(restart, k.Path)
		} else {
			reload = append(reload, k.Path)
		}
	}
	return restart, reload
}

// inList reports whether a key is of the items of a list.
func inList(path string) bool {
	for at := key.Section(path); at != ""; at = key.Section(at) {
		if config.TypeName(at) == "list of sections" {
			return true
		}
	}
	return false
}

const restartHead = `{{/* Made by go test ./test/deploy -run RestartKeys -update, from the table of keys.
     The keys of the server, and of the agents, that need a restart. */}}
`

const restartSum = `
{{/* A sum of the values of these keys of a config. */}}
{{- define "portolan.restartSum" -}}
{{- $values := dict -}}
{{- range $path := .keys -}}
{{- $at := $.config -}}
{{- range splitList "." $path -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- $_ := set $values $path $at -}}
{{- end -}}
{{ toJson $values | sha256sum }}
{{- end }}
`

// TestRestartKeys: the chart's list is that of the table.
func TestRestartKeys(t *testing.T) {
	var b strings.Builder
	b.WriteString(restartHead)
	for name, process := range []key.Condition{key.WithAPI, key.OnNode} {
		restart, _ := restartKeys(process)
		fmt.Fprintf(&b, "{{- define %q -}}\n", []string{"portolan.restartKeys", "portolan.nodeRestartKeys"}[name])
		for _, path := range restart {
			fmt.Fprintf(&b, "- %s\n", path)
		}
		b.WriteString("{{- end }}\n")
	}
	b.WriteString(restartSum)
	file := filepath.Join(chartDir, "templates", "_restart.tpl")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(b.String(), readFile(t, file)); diff != "" {
		t.Errorf("%s (-table +file), run with -update:\n%s", file, diff)
	}
}

// TestRestartEachKey: each key that needs a restart replaces the Pods, and no other
// does.
func TestRestartEachKey(t *testing.T) {
	pods := func(values map[string]any) corev1.PodTemplateSpec {
		return as[appsv1.Deployment](t, rendered(t, values), "Deployment").Spec.Template
	}
	before := pods(nil)
	restart, reload := restartKeys(key.WithAPI)
	if len(restart) == 0 || len(reload) == 0 {
		t.Fatalf("%d keys need a restart, %d do not", len(restart), len(reload))
	}
	for _, path := range slices.Concat(restart, reload) {
		// The chart takes any value; dns.pods has a schema.
		value := any("changed")
		if path == "dns.pods" {
			value = "disabled"
		}
		if path == "dns.zones" {
			value = []any{"changed"}
		}
		names := strings.Split(path, ".")
		slices.Reverse(names)
		for _, name := range append(names, "config") {
			value = map[string]any{name: value}
		}
		changed := !cmp.Equal(before, pods(value.(map[string]any)))
		if want := slices.Contains(restart, path); changed != want {
			t.Errorf("a change of %s replaces Pods: %v, want %v", path, changed, want)
		}
	}
}
