//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"portolan.dev/portolan/internal/cluster/snapshot"
	"portolan.dev/portolan/internal/kube/apitest"
)

// startWithMounts starts `portolan serve` with a configuration file in a mount namespace
// of its own, after a shell script that mounts file systems.
func startWithMounts(t *testing.T, script, config string, env ...string) *process {
	t.Helper()
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil && os.Getenv("CI") == "" {
		t.Skipf("mounts of one's own need root, and unshare (Debian: util-linux): %v %s", err, out)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-e", "-c", script+"\nexec portolan serve --config \"$0\"", settings(t, config))
	cmd.Env = append(os.Environ(), env...)
	return follow(t, cmd).serving()
}

// accountDir is the directory of a Pod's service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestReadsAPIWithServiceAccount checks that a server in a Pod uses its service account.
// When the API server rejects the token, it reads the token file again immediately, not
// within a minute as client-go does.
func TestReadsAPIWithServiceAccount(t *testing.T) {
	t.Parallel()
	api := apitest.NewTLS(t)
	api.Put(apiService("shop", "web", "10.96.0.7"))
	account := t.TempDir()
	api.Account(t, account, "first")
	at, err := url.Parse(api.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := startWithMounts(t,
		"mount -t tmpfs tmpfs /var/run; mkdir -p "+accountDir+"; mount --bind "+account+" "+accountDir, "kubernetes: {}",
		"KUBERNETES_SERVICE_HOST="+at.Hostname(), "KUBERNETES_SERVICE_PORT="+at.Port())
	p.await(patience, web, "10.96.0.7")

	for _, next := range []string{"10.96.0.8", "10.96.0.9"} {
		api.Account(t, account, "for "+next)
		api.Cut()
		api.Put(apiService("shop", "web", next))
		p.await(patience, web, next)
	}
}

// TestSnapshotOnFullDisk checks that if there is no space for a new snapshot, the last
// one is not damaged, answers stay up to date, and the error is logged once.
func TestSnapshotOnFullDisk(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	api, dir := newAPI(t), t.TempDir()
	p := startWithMounts(t, fmt.Sprintf("mount -t tmpfs -o size=%d tmpfs %s", size, dir),
		fmt.Sprintf("kubernetes: {kubeconfig: %q}\nsnapshot: {file: %s/snapshot}", api.Kubeconfig(t), dir))
	disk := fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, dir) // as p sees it
	file, filler := filepath.Join(disk, "snapshot"), filepath.Join(disk, "filler")
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_snapshot_write_timestamp_seconds ")

	if err := os.WriteFile(filler, make([]byte, size), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v, want no space left", err)
	}
	api.Put(apiService("shop", "web", "10.96.0.10"))
	p.waitLog("snapshot can't be written; the last one stays, and it is tried again.* " + dir + "/snapshot.new-[0-9]+: no space left on device; the file system needs room for two")
	before := contents(t, file)
	api.Put(apiService("shop", "web", "10.96.0.11"))
	p.await(patience, web, "10.96.0.11")
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_snapshot_errors_total 2")
	if n := strings.Count(p.logged(), "can't be written"); n != 1 {
		t.Errorf("logged %d times that it cannot be written, want once", n)
	}
	if _, err := snapshot.ReadFile(file); err != nil || contents(t, file) != before {
		t.Errorf("the last snapshot: %v, or changed", err)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) != 2 {
		t.Errorf("on the disk: %v, %v; want the filler and the snapshot", left, err)
	}
	p.awaitAdmin("/readyz", http.StatusOK, "ok")

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.waitLog("snapshot can be written again")
	if contents(t, file) == before {
		t.Error("the snapshot has not been replaced")
	}
}
