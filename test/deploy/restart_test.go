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

// The conditions of restarts that hold, or may hold, for the chart's workloads.
var (
	ofServer = []key.Condition{key.WithAPI, key.WithSimulation}
	ofAgent  = []key.Condition{key.OnNode}
)

// announced are the keys of another workload that say whose addresses agents announce.
var announced = []string{"controller.loadBalancer.class", "controller.loadBalancer.withoutClass"}

// restartKeys returns the keys of a workload that need a restart, and those that do not.
func restartKeys(conditions []key.Condition) (restart, reload []string) {
	table := config.Keys()
	for i := range table {
		k := &table[i]
		section, _, _ := strings.Cut(k.Path, ".")
		onNode := slices.Contains(conditions, key.OnNode)
		own := section != "webhook" && section != "controller" && (section != "node" || onNode) ||
			onNode && slices.Contains(announced, k.Path)
		if !own || config.TypeName(k.Path) == "section" || inList(k.Path) {
			continue
		}
		if k.NeedsRestart(func(c key.Condition) bool { return slices.Contains(conditions, c) }) {
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
	for name, conditions := range [][]key.Condition{ofServer, ofAgent} {
		restart, _ := restartKeys(conditions)
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

// TestRestartEachKey: a key that needs a restart, and that a workload's configuration
// has, replaces the Pods of that workload; no other key does.
func TestRestartEachKey(t *testing.T) {
	t.Run("Deployment", func(t *testing.T) {
		testRestartEachKey(t, ofServer, func(config map[string]any) (string, corev1.PodTemplateSpec) {
			all := rendered(t, map[string]any{"config": config})
			return configText(t, all), as[appsv1.Deployment](t, all, "Deployment").Spec.Template
		})
	})
	t.Run("DaemonSet", func(t *testing.T) {
		testRestartEachKey(t, ofAgent, func(config map[string]any) (string, corev1.PodTemplateSpec) {
			node := map[string]any{"enabled": true}
			if own, ok := config["node"]; ok { // the agents' section has a place of its own
				node["config"], config = own, map[string]any{}
			}
			all := rendered(t, map[string]any{"config": config, "node": node})
			all = without(all, rendered(t, map[string]any{"config": config}))
			return configText(t, all), as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template
		})
	})
	t.Run("gateway", func(t *testing.T) {
		testRestartEachKey(t, ofServer, func(config map[string]any) (string, corev1.PodTemplateSpec) {
			gateway := map[string]any{"enabled": true, "terminationGracePeriodSeconds": 900}
			if own, ok := config["gateway"]; ok { // its section has a place of its own
				gateway["config"], config = own, map[string]any{}
			}
			all := ofGateway(rendered(t, map[string]any{"config": config, "gateway": gateway}))
			return configText(t, all), as[appsv1.Deployment](t, all, "Deployment").Spec.Template
		})
	})
}

func testRestartEachKey(
	t *testing.T, conditions []key.Condition, workload func(map[string]any) (string, corev1.PodTemplateSpec),
) {
	textBefore, podBefore := workload(map[string]any{})
	restart, reload := restartKeys(conditions)
	replaced, kept := 0, 0
	for _, path := range slices.Concat(restart, reload) {
		if slices.Contains(chartKeys, path) {
			continue
		}
		text, pod := workload(changedKey(path))
		want := slices.Contains(restart, path) && text != textBefore
		if changed := !cmp.Equal(podBefore, pod); changed != want {
			t.Errorf("a change of %s replaces Pods: %v, want %v", path, changed, want)
		}
		if want {
			replaced++
		} else {
			kept++
		}
	}
	if replaced == 0 || kept == 0 {
		t.Errorf("%d keys replace Pods and %d do not, want some of both", replaced, kept)
	}
}

// chartKeys are the keys that the chart sets from other values, and refuses.
var chartKeys = []string{"gateway.handover", "gateway.lease", "gateway.tls.ticketSecret", "node.notify", "node.parts"}

// changedKey returns a configuration with another value of a key than the default.
func changedKey(path string) map[string]any {
	table := config.Keys()
	k, _ := table.Find(path)
	value := any("changed")
	switch kind := config.TypeName(path); {
	case path == "kubernetes.namespaces": // the chart wants its own among them
		value = []any{"kube-system", "changed"}
	case len(k.Values) > 0:
		value = k.Values[slices.IndexFunc(k.Values, func(v string) bool { return v != config.DefaultText(path) })]
	case strings.HasSuffix(path, ".listen") && kind == "list of text":
		value = []any{"127.0.0.1:77"}
	case kind == "list of text", kind == "list of sections":
		value = []any{"changed"}
	case kind == "true or false":
		value = config.DefaultText(path) != "true"
	case kind == "number":
		value = 77
	case kind == "duration":
		value = "77s"
	}
	names := strings.Split(path, ".")
	slices.Reverse(names)
	for _, name := range names {
		value = map[string]any{name: value}
	}
	return value.(map[string]any)
}
