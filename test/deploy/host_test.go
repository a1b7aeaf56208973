package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"portolan.dev/portolan/test/program"
)

// buildBinary builds portolan into a directory that every user can read.
func buildBinary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "portolan") //nolint:usetesting // others cannot read below t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := program.Build(t.Context(), program.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(file))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, filepath.Base(file))
}

// TestUnit: systemd knows every setting of the units, and finds little left to
// take away.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (Debian: systemd)")
	}
	for name, instance := range map[string]string{
		"portolan.service": "portolan.service", "portolan-gateway@.service": "portolan-gateway@1.service",
	} {
		text := readFile(t, filepath.Join(deployDir, "systemd", name))
		unit := filepath.Join(t.TempDir(), instance)
		present := strings.ReplaceAll(text, "/usr/local/bin/portolan ", "/bin/true ") // verify wants it to be there
		if err := os.WriteFile(unit, []byte(present), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput(); err != nil || bytes.Contains(out, []byte(unit)) {
			t.Errorf("%s: systemd-analyze verify: %v\n%s", name, err, out)
		}
		const exposure = "20" // of 100; the words for it are OK below 50
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold="+exposure, unit).CombinedOutput()
		if err != nil {
			t.Errorf("%s: systemd-analyze security: %v\n%s", name, err, out)
		}
	}
}

// readUnit returns the settings of a unit; of one that is there several times, the last.
func readUnit(t *testing.T, name string) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for line := range strings.Lines(readFile(t, filepath.Join(deployDir, "systemd", name))) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			settings[key] = value
		}
	}
	return settings
}

// unitSeconds returns a time span of a unit.
func unitSeconds(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestGatewayUnit: instances of the gateway's unit share a user and a directory, in which the socket is that one
// gets the ports of another at, but not the socket of their probes; and one is not killed while it drains.
func TestGatewayUnit(t *testing.T) {
	unit := readUnit(t, "portolan-gateway@.service")
	cfg := readConfig(t, readFile(t, filepath.Join(deployDir, "systemd", "gateway.yaml")))
	compiled, err := cfg.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if unit["DynamicUser"] != "yes" || unit["User"] == "" || unit["RuntimeDirectoryPreserve"] != "yes" ||
		cfg.Gateway.Handover != "/run/"+unit["RuntimeDirectory"]+"/socket" {
		t.Errorf("handover at %s; the unit has %v", cfg.Gateway.Handover, unit)
	}
	if probes := cfg.Admin.Probes[0]; unit["PrivateTmp"] != "yes" || !strings.HasPrefix(probes, "unix:/tmp/") ||
		!strings.Contains(unit["ExecStartPost"], "portolan probe ready "+probes+";") {
		t.Errorf("probes at %s; the unit has %s", probes, unit["ExecStartPost"])
	}
	if !slices.Contains(strings.Fields(unit["RestrictAddressFamilies"]), "AF_UNIX") {
		t.Errorf("sockets of %s alone", unit["RestrictAddressFamilies"])
	}
	ends := time.Duration(cfg.Lameduck) + compiled.Gateway.DrainShutdown
	if stop := unitSeconds(t, unit["TimeoutStopSec"]); stop <= ends {
		t.Errorf("it ends within %s, TimeoutStopSec is %s", ends, stop)
	}
}

// TestImage: the image's user is the manifests', there is nothing in it but the
// binary, and the compiler is as new as go.mod wants.
func TestImage(t *testing.T) {
	text := readFile(t, filepath.Join(deployDir, "image", "Dockerfile"))
	security := as[appsv1.Deployment](t, kustomized(t, "base"), "Deployment").Spec.Template.Spec.SecurityContext
	stages := strings.Split(text, "\nFROM ")
	last := stages[len(stages)-1]
	for _, want := range []string{
		"scratch\n",
		fmt.Sprintf("\nUSER %d:%d\n", *security.RunAsUser, *security.RunAsGroup),
		"\nENTRYPOINT [\"/portolan\"]\n",
	} {
		if !strings.Contains("\n"+last, want) {
			t.Errorf("the last stage of the Dockerfile lacks %q", want)
		}
	}
	goMod := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "../../go.mod"))[1]
	if !strings.Contains(text, "ARG GO_VERSION="+goMod+".") {
		t.Errorf("the Dockerfile's GO_VERSION is not one of Go %s, which go.mod wants", goMod)
	}
}
