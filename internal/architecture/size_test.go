package architecture

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReflectMethod: nothing in the program calls methods by names that are known
// at run time only. One such call, as in text/template, has the linker keep all
// exported methods of all types: those of client-go's made the program half as
// large again, in memory too.
func TestReflectMethod(t *testing.T) {
	command := exec.Command("go", "build", "-ldflags=-dumpdep", "-o", filepath.Join(t.TempDir(), "portolan"), module+"/cmd/portolan")
	var dependencies bytes.Buffer
	command.Stderr = &dependencies
	if err := command.Run(); err != nil {
		end := dependencies.Bytes()
		t.Fatalf("%v: %s", err, end[max(0, len(end)-1000):])
	}
	const kept = "main.main -> " // the linker tells of what it keeps at all
	if !strings.Contains(dependencies.String(), kept) {
		t.Fatalf("the linker does not tell what main needs: %.1000s", dependencies.Bytes())
	}
	for line := range strings.Lines(dependencies.String()) {
		if strings.Contains(line, "<ReflectMethod>") {
			t.Errorf("linked: %s", line)
		}
	}
}
