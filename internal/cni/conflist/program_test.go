package conflist

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgram: the program is there, executable, whatever was there before, and a plugin that runs goes on.
func TestProgram(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	must(t, err)
	new1 := filepath.Join(directory(t, map[string]string{"new": "#!/bin/sh\necho 1\n"}), "new")
	new2 := filepath.Join(directory(t, map[string]string{"new": "#!/bin/sh\necho 2\n"}), "new")
	cfg := Config{BinDir: filepath.Join(t.TempDir(), "opt", "cni", "bin")}
	install := func(from, want string, wantChange bool) {
		t.Helper()
		cfg.Program = from
		path, changed, err := InstallProgram(cfg)
		if err != nil || changed != wantChange || path != filepath.Join(cfg.BinDir, "portolan") {
			t.Fatalf("InstallProgram: %s, %t, %v, want a change: %t", path, changed, err, wantChange)
		}
		if want == "" {
			return
		}
		if out, err := exec.CommandContext(t.Context(), path).Output(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("the installed program: %q, %v, want %s", out, err, want)
		}
	}
	install(sleep, "", true)
	running := exec.CommandContext(t.Context(), filepath.Join(cfg.BinDir, "portolan"), "1000")
	must(t, running.Start())
	install(new1, "1", true)
	install(new1, "1", false)
	install(new2, "2", true) // of the same size
	if running.ProcessState != nil {
		t.Error("the program before has ended")
	}
	must(t, running.Process.Kill())
	_ = running.Wait()
	must(t, os.Chmod(filepath.Join(cfg.BinDir, "portolan"), 0o600))
	install(new2, "2", true)
	install(filepath.Join(cfg.BinDir, "portolan"), "2", false) // itself
	for range 2 {
		if _, err := RemoveProgram(cfg); err != nil {
			t.Error(err)
		}
	}
	if left := contents(t, cfg.BinDir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	must(t, os.Mkdir(filepath.Join(cfg.BinDir, "portolan"), 0o700))
	if _, _, err := InstallProgram(cfg); err == nil || !strings.HasSuffix(err.Error(), "portolan is not a file") {
		t.Errorf("InstallProgram over a directory: %v", err)
	}
}
