package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/freeport"
)

// monitor is a Prometheus. It scrapes the processes that are watched, each second.
type monitor struct {
	t      *testing.T
	url    string
	bridge *httptest.Server

	mu      sync.Mutex
	targets map[string]target
	file    string // with the targets
}

// target is an admin address in a network namespace.
type target struct {
	in    *host
	admin string
	page  func() string // in place of a process
}

const settings = `global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: portolan
    file_sd_configs: [{files: [targets.json], refresh_interval: 5m}]
`

// startMonitor starts Prometheus with the alerting rules, whose time to wait (for) is none.
func startMonitor(t *testing.T) *monitor {
	t.Helper()
	dir := t.TempDir()
	m := &monitor{t: t, targets: make(map[string]target), file: filepath.Join(dir, "targets.json")}
	m.bridge = httptest.NewServer(http.HandlerFunc(m.scrape))
	t.Cleanup(m.bridge.Close)
	rules := regexp.MustCompile(`(?m)^\s+for: .*\n`).ReplaceAllString(readFile(t, rulesFile), "")
	m.writeTargets()
	for name, text := range map[string]string{"prometheus.yaml": settings, "rules.yaml": rules} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	at := freeport.Loopback(t).String()
	m.url = "http://" + at
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", at)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	ended, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		log.Close()
		if t.Failed() {
			t.Log(readFile(t, log.Name()))
		}
	})
	await.NoError(t, func() error {
		_, err := m.get("/-/ready", nil)
		return err
	})
	return m
}

// watch has the admin address of a process in a network namespace scraped.
func (m *monitor) watch(instance string, of target) {
	m.mu.Lock()
	m.targets[instance] = of
	m.mu.Unlock()
	m.writeTargets()
}

func (m *monitor) writeTargets() {
	m.t.Helper()
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	m.mu.Lock()
	for instance := range m.targets {
		groups = append(groups, group{[]string{m.bridge.Listener.Addr().String()}, map[string]string{
			"instance": instance, "job": "portolan", "__metrics_path__": "/" + instance,
		}})
	}
	m.mu.Unlock()
	text, err := json.Marshal(groups)
	if err != nil {
		m.t.Fatal(err)
	}
	// Prometheus watches the directory, and reads a file that is renamed.
	writeFile(m.t, m.file+".new", string(text))
	if err := os.Rename(m.file+".new", m.file); err != nil {
		m.t.Fatal(err)
	}
}

// scrape passes a scrape on to a process in another network namespace.
func (m *monitor) scrape(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	of, known := m.targets[strings.TrimPrefix(r.URL.Path, "/")]
	m.mu.Unlock()
	if !known {
		http.NotFound(w, r)
		return
	}
	if of.page != nil {
		_, _ = io.WriteString(w, of.page()) // Prometheus may have given up
		return
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return of.in.dial(ctx, network, of.admin)
		},
	}}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+of.admin+"/metrics", nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	response, err := client.Do(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body) // Prometheus may have given up
}

// get reads a page of Prometheus.
func (m *monitor) get(path string, values url.Values) ([]byte, error) {
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.url+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return body, err
}

// series is one result of a query.
type series struct {
	Metric map[string]string
	Value  float64
}

// query evaluates an expression now. Results that are no number are left out.
func (m *monitor) query(expr string) (found []series, err error) {
	body, err := m.get("/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", expr, err)
	}
	var reply struct {
		Data struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return nil, err
	}
	if reply.Data.ResultType != "vector" {
		return nil, fmt.Errorf("query %s: a %s, want a vector", expr, reply.Data.ResultType)
	}
	var all []struct {
		Metric map[string]string
		Value  [2]any
	}
	if err := json.Unmarshal(reply.Data.Result, &all); err != nil {
		return nil, err
	}
	for _, s := range all {
		text, _ := s.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(value) {
			found = append(found, series{s.Metric, value})
		}
	}
	return found, nil
}

// alert is an alert that fires.
type alert struct {
	Labels, Annotations map[string]string
	State               string
}

func (m *monitor) alerts() ([]alert, error) {
	body, err := m.get("/api/v1/alerts", nil)
	if err != nil {
		return nil, err
	}
	var reply struct{ Data struct{ Alerts []alert } }
	return reply.Data.Alerts, json.Unmarshal(body, &reply)
}
