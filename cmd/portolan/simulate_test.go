//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// effectsOfSimulate are the effects of the keys of the simulated control plane.
var effectsOfSimulate = map[string]func(*testing.T){
	"simulate.enabled": func(t *testing.T) {
		wantGetOutput(t, "services", "{enabled: false}", "<none>")
		wantGetOutput(t, "services", "{enabled: true}", "10.96.")
	},
	"simulate.nodePorts": func(t *testing.T) {
		wantGetOutput(t, "services", "{enabled: true}", "80:3")
		wantGetOutput(t, "services", "{enabled: true, nodePorts: 2000-2000}", "80:2000/TCP")
	},
	"simulate.maxEndpointsPerSlice": func(t *testing.T) {
		wantGetOutput(t, "endpointslices", "{enabled: true}", " + 2 more...")
		wantGetOutput(t, "endpointslices", "{enabled: true, maxEndpointsPerSlice: 2}", "10.244.")
	},
}

func init() { maps.Copy(effects, effectsOfSimulate) }

// TestSnapshotKeepsSimulatedAddresses checks that with a snapshot a Service has the same
// address after a restart, and that a change of the address is refused, as by the API
// server.
func TestSnapshotKeepsSimulatedAddresses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, snapshot := filepath.Join(dir, "web.yaml"), filepath.Join(dir, "snapshot")
	const text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {%s, ports: [{port: 80}]}\n"
	begin := func() *process {
		p := start(t, "--manifests", file, "--simulate", "--snapshot", snapshot, "--listen", anyPort)
		p.waitLog("manifests loaded")
		p.await(patience, web, "10.96.0.7")
		return p
	}
	write(t, file, fmt.Sprintf(text, "clusterIP: 10.96.0.7"))
	p := begin()
	write(t, file, fmt.Sprintf(text, "type: ClusterIP"))
	p.stop(syscall.SIGTERM)
	p = begin()
	write(t, file, fmt.Sprintf(text, "clusterIP: None"))
	p.waitLog("may not change once set")
	p.await(patience, web, "10.96.0.7")
	p.stop(syscall.SIGTERM)
	write(t, file, fmt.Sprintf(text, "type: ClusterIP"))
	if err := os.Remove(snapshot); err != nil {
		t.Fatal(err)
	}
	p = start(t, "--manifests", file, "--simulate", "--listen", anyPort)
	p.waitLog("manifests loaded")
	p.poll(patience, func() error {
		if m := p.ask("udp", question(web)); m.Status != "NOERROR" || strings.Contains(m.String(), "\t10.96.0.7\n") {
			return fmt.Errorf("without a snapshot:\n%swant another address", m)
		}
		return nil
	})
}

// wantGetOutput checks the output of get for a Service with five Pods, whose endpoints
// are in three slices of at most two.
func wantGetOutput(t *testing.T, kind, simulate, words string) {
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
