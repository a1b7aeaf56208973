package proxyplan

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// edit replaces a text that a file has once or more.
type edit struct{ file, old, new string }

// recording is a package of kube-proxy whose tests are run with a recorder.
type recording struct {
	pkg      string // below k8s.io/kubernetes/pkg
	recorder string // the file of testdata that is added
	tests    []string
	edits    []edit
}

// record runs tests of kube-proxy, with a recorder among their files, and returns what it wrote.
// The files are those of the module k8s.io/kubernetes. They are compiled at another place, by
// "go test -overlay": nothing of them is in this tree.
func record[T any](t *testing.T, r recording) (records []T) {
	t.Helper()
	from := goList(t, "{{.Dir}}", "k8s.io/kubernetes/pkg/"+r.pkg)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, at := t.TempDir(), filepath.Join(here, "recorded", filepath.Base(r.pkg))
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	names := strings.Fields(goList(t, `{{join .GoFiles " "}}`, "k8s.io/kubernetes/pkg/"+r.pkg))
	for _, name := range append(names, r.tests...) {
		overlay.Replace[filepath.Join(at, name)] = edited(t, dir, filepath.Join(from, name), r.edits)
	}
	overlay.Replace[filepath.Join(at, "recorder_test.go")] = filepath.Join(here, "testdata", r.recorder)
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file, out := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "records")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The recorded package imports modules that this one requires for others only: a copy of
	// go.mod says so.
	module := filepath.Dir(goList(t, "{{.Module.GoMod}}", "."))
	for _, name := range []string{"go.mod", "go.sum"} {
		edited(t, dir, filepath.Join(module, name), nil)
	}
	program := filepath.Join(dir, "recorder")
	run(t, exec.Command(
		"go", "test", "-c", "-o", program, "-vet=off", "-mod=mod", "-modfile", filepath.Join(dir, "go.mod"), "-overlay", file,
		"./recorded/"+filepath.Base(r.pkg),
	))
	recorder := exec.Command(program)
	recorder.Dir, recorder.Env = dir, append(os.Environ(), "PORTOLAN_RECORD="+out)
	run(t, recorder)
	return decoded[T](t, out)
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, text)
	}
}

func goList(t *testing.T, format, pkg string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", format, pkg).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", pkg, err)
	}
	return strings.TrimSpace(string(out))
}

// edited returns a file with the edits that are for it.
func edited(t *testing.T, dir, path string, edits []edit) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		if e.file != filepath.Base(path) {
			continue
		}
		if !strings.Contains(string(text), e.old) {
			t.Fatalf("%s lacks %q", path, e.old)
		}
		text = []byte(strings.ReplaceAll(string(text), e.old, e.new))
	}
	to := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// decoded returns the records of a file, one in a line.
func decoded[T any](t *testing.T, path string) (all []T) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var r T
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
