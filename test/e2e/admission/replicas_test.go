package admission_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/process"
)

// replica is one Pod of the webhook.
type replica struct {
	process.Process
	addr, admin string
	killed      bool
}

// start starts a replica with the configuration that is shipped, and with more
// keys of webhook, and waits until it is ready.
func (w *webhooks) start(more string) *replica {
	w.t.Helper()
	shipped, err := os.ReadFile(hookDir + "/config.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, append(shipped, more...), 0o600); err != nil {
		w.t.Fatal(err)
	}
	r := new(replica)
	r.Path, r.Log = w.file, filepath.Join(dir, "log")
	r.Args = []string{"webhook", "--config", config, "--kubeconfig", w.kubeconfig, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	if err := r.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.replicas = append(w.replicas, r)
	w.t.Cleanup(func() {
		w.stop()
		if code := r.State().ExitCode(); !r.killed && code != 0 || strings.Contains(r.Logged(), "DATA RACE") {
			w.t.Errorf("portolan webhook: %s, want exit status 0 and no data race", r.State())
		}
		if strings.Contains(r.Logged(), "forbidden") {
			w.t.Errorf("a right is missing")
		}
		if w.t.Failed() {
			w.t.Logf("log of a webhook:\n%s", r.LastLogged())
		}
	})
	started := regexp.MustCompile(`"msg":"serving","listen":"([^"]+)".*"admin":"([^"]+)"`)
	await.NoError(w.t, func() error {
		match := started.FindStringSubmatch(r.Logged())
		if match == nil {
			return errors.New("it does not say where it listens")
		}
		r.addr, r.admin = match[1], match[2]
		return nil
	})
	await.NoError(w.t, func() error {
		if status, body := r.get("/readyz"); status != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", status, body)
		}
		return nil
	})
	w.balance()
	return r
}

func (r *replica) get(path string) (status int, body string) {
	client := http.Client{Timeout: await.Answer}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + r.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// kill gives it no time to end.
func (r *replica) kill() {
	r.killed = true
	r.Stop(0)
}

// stop has all replicas end gently, at once.
func (w *webhooks) stop() {
	var stopping sync.WaitGroup
	for _, r := range w.replicas {
		stopping.Go(func() { r.Stop(await.Patience) })
	}
	stopping.Wait()
}

// balance has the Service lead to the replicas that run.
func (w *webhooks) balance() {
	var to []string
	for _, r := range w.replicas {
		if r.Running() {
			to = append(to, r.addr)
		}
	}
	w.proxy.lead(to)
}

// testWebhookMetrics: /metrics has what docs/operate.md has, and nothing else.
func testWebhookMetrics(t *testing.T, w *webhooks) {
	page, err := os.ReadFile(repository + "/docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := bytes.Cut(page, []byte("### Metrics of the webhook\n"))
	section, _, _ = bytes.Cut(section, []byte("\n### "))
	want := []string{"portolan_build_info"}
	for _, m := range regexp.MustCompile("\n\\| `(portolan_[a-z_]+)` \\|").FindAllSubmatch(section, -1) {
		want = append(want, string(m[1]))
	}
	told := make(map[string]bool)
	var first strings.Builder
	for _, r := range w.replicas {
		_, body := r.get("/metrics")
		first.WriteString(body)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (portolan_\w+) `).FindAllStringSubmatch(body, -1) {
			told[m[1]] = true
		}
	}
	var got []string
	for name := range told {
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("metrics %q, want those of operate.md, %q", got, want)
	}
	if !strings.Contains(first.String(), `portolan_webhook_reviews_total{operation="CREATE",resource="pods",result="changed",webhook="mutate"}`) {
		t.Errorf("no replica tells of a Pod that it has changed:\n%s", &first)
	}
}
