//go:build unix

package main

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// effectsOfSimulate are of the keys that complete manifests.
var effectsOfSimulate = map[string]func(*testing.T){
	"simulate.enabled": func(t *testing.T) {
		wantShown(t, "services", "{enabled: false}", "<none>")
		wantShown(t, "services", "{enabled: true}", "10.96.")
	},
	"simulate.nodePorts": func(t *testing.T) {
		wantShown(t, "services", "{enabled: true}", "80:3")
		wantShown(t, "services", "{enabled: true, nodePorts: 2000-2000}", "80:2000/TCP")
	},
	"simulate.maxEndpointsPerSlice": func(t *testing.T) {
		wantShown(t, "endpointslices", "{enabled: true}", " + 2 more...")
		wantShown(t, "endpointslices", "{enabled: true, maxEndpointsPerSlice: 2}", "10.244.")
	},
}

func init() { maps.Copy(effects, effectsOfSimulate) }

// wantShown wants words in what get shows of a Service with five Pods; slices of
// two endpoints at most are three.
func wantShown(t *testing.T, kind, simulate, words string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "web.yaml")
	write(t, file, `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 5, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}}}
`)
	cmd := exec.Command("portolan", "get", kind, "--config", settings(t, fmt.Sprintf("manifests: %s\nsimulate: %s", file, simulate)))
	printed, err := cmd.Output()
	if err != nil || !strings.Contains(string(printed), words) {
		t.Errorf("%q with simulate: %s: %v, printed\n%swant %q", cmd.Args, simulate, err, printed, words)
	}
	if rows := strings.Count(string(printed), "\nweb"); strings.Contains(simulate, ": 2}") && rows != 3 {
		t.Errorf("%q with simulate: %s: %d slices, want 3:\n%s", cmd.Args, simulate, rows, printed)
	}
}
