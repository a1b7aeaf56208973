package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/test/await"
)

// TestWatch: `portolan test --watch` tests again when a suite, a manifest or the configuration changes, also if the
// configuration alone names the manifests.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	service := func(port int) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}, "+
			"spec: {clusterIP: 10.96.0.9, ports: [{port: %d}]}}", port)
	}
	for _, of := range []string{"a", "b"} {
		if err := os.Mkdir(file(of), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(file(of), "web.yaml"), service(80))
	}
	write(t, file("suite.yaml"), "tests: [{from: outside/n1, to: '10.96.0.9:81', expect: refused}]")
	write(t, file("portolan.yaml"), "manifests: "+file("a"))
	out, err := os.Create(file("out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("portolan", "test", file("suite.yaml"), "--watch", "--config", file("portolan.yaml"))
	cmd.Stdout = out
	follow(t, cmd)
	runs := 0
	wantRun := func() {
		t.Helper()
		runs++
		await.NoError(t, func() error {
			text, err := os.ReadFile(out.Name())
			if n := strings.Count(string(text), " passed, "); err == nil && n < runs {
				err = fmt.Errorf("%d runs, want %d:\n%s", n, runs, text)
			}
			return err
		})
	}
	wantRun()
	write(t, filepath.Join(file("a"), "web.yaml"), service(81))
	wantRun()
	write(t, file("portolan.yaml"), "manifests: "+file("b"))
	wantRun()
	write(t, file("suite.yaml"), "tests: [{from: outside/n1, to: '10.96.0.9:82', expect: refused}]")
	wantRun()
}
