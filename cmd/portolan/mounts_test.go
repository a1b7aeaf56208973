//go:build linux

package main

import (
	"net/url"
	"os"
	"os/exec"
	"testing"

	"portolan.dev/portolan/internal/apitest"
)

// startWithMounts starts `portolan serve` with a configuration file and with
// mounts that it alone has, as this shell script makes them. All of them go
// when it ends.
func startWithMounts(t *testing.T, script, config string, env ...string) *process {
	t.Helper()
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		const why = "mounts of one's own need root, and unshare (Debian: util-linux)"
		if os.Getenv("CI") == "" {
			t.Skipf("%s: %v %s", why, err, out)
		}
		t.Fatalf("%s: %v %s", why, err, out)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-e", "-c", script+"\nexec portolan serve --config \"$0\"", settings(t, config))
	cmd.Env = append(os.Environ(), env...)
	return follow(t, cmd).serving()
}

// accountDir is where a Pod finds its account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestInCluster: as a Pod it reads with the Pod's account. When the token is
// refused it goes on at once with the one that is there by then; client-go alone
// would look for it within a minute.
func TestInCluster(t *testing.T) {
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
