package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

// TestUnit: systemd knows every setting of the unit, and finds little left to
// take away.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (Debian: systemd)")
	}
	text := readFile(t, filepath.Join(deployDir, "systemd", "portolan.service"))
	unit := filepath.Join(t.TempDir(), "portolan.service")
	present := strings.ReplaceAll(text, "/usr/local/bin/portolan ", "/bin/true ") // verify wants it to be there
	if err := os.WriteFile(unit, []byte(present), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput(); err != nil || bytes.Contains(out, []byte(unit)) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	const exposure = "20" // of 100; the words for it are OK below 50
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold="+exposure, unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
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
