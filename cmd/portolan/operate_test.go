//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster/snapshot"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/kube/apitest"
)

// admin requests a path of the admin server and returns the status and the body.
func (p *process) admin(path string) (status int, body string) {
	p.t.Helper()
	return get(p.t, p.waitLog(`serving.*admin\W+([0-9.]+:\d+)`)[1], path)
}

func get(t *testing.T, addr, path string) (status int, body string) {
	t.Helper()
	answer, err := http.Get("http://" + addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// awaitAdmin waits until the admin server responds with the status and words.
func (p *process) awaitAdmin(path string, status int, words string) {
	p.t.Helper()
	p.poll(patience, func() error {
		if got, text := p.admin(path); got != status || !strings.Contains(text, words) {
			return fmt.Errorf("%s: %d %q, want %d and %q", path, got, text, status, words)
		}
		return nil
	})
}

// apiService returns a Service for the API server.
func apiService(namespace, name, clusterIP string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}},
	}
}

// newAPI returns an API server with web and a Service in another Namespace.
func newAPI(t *testing.T) *apitest.Server {
	api := apitest.New(t)
	api.Put(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		apiService("shop", "web", "10.96.0.7"), apiService("other", "web", "10.96.0.8"),
	)
	return api
}

const otherWeb = "web.other.svc.cluster.local."

// serveAPI starts a server with an API server and settings of the key kubernetes, and
// waits until it answers web.
func serveAPI(t *testing.T, api *apitest.Server, kubernetes, more string) *process {
	t.Helper()
	p := startFromAPI(t, api, kubernetes, more)
	p.await(patience, web, "10.96.0.7")
	return p
}

// startFromAPI is serveAPI without waiting.
func startFromAPI(t *testing.T, api *apitest.Server, kubernetes, more string) *process {
	t.Helper()
	return start(t, "--config", settings(t, fmt.Sprintf("kubernetes: {kubeconfig: %q%s}\n%s", api.Kubeconfig(t), kubernetes, more)))
}

func effectOfKubeconfig(t *testing.T) {
	p := serveAPI(t, newAPI(t), "", "")
	p.await(patience, otherWeb, "10.96.0.8")
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
}

func effectOfNamespaces(t *testing.T) {
	p := serveAPI(t, newAPI(t), ", namespaces: [shop, shopp]", "")
	p.awaitDenial(patience, otherWeb)
	p.waitLog("namespace=shopp")
}

func effectOfServiceSelector(t *testing.T) {
	api := newAPI(t)
	api.Put(apiService("shop", "search", "10.96.0.9"))
	serveAPI(t, api, ", serviceSelector: app=web", "").awaitDenial(patience, "search.shop.svc.cluster.local.")
}

// requestDuration returns how long the requests for all kinds took with rate limits.
func requestDuration(t *testing.T, limits string) time.Duration {
	api := newAPI(t)
	p := serveAPI(t, api, limits, "")
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	asked := api.Requests()
	const kinds = 4
	if len(asked) < kinds {
		t.Fatalf("%d requests, want %d", len(asked), kinds)
	}
	return asked[kinds-1].At.Sub(asked[0].At)
}

func effectOfQPS(t *testing.T) {
	if slow := requestDuration(t, ", qps: 1, burst: 1"); slow < 2500*time.Millisecond {
		t.Errorf("four requests within %s at 1 a second", slow)
	}
	if fast := requestDuration(t, ", qps: 100, burst: 1"); fast > 2*time.Second {
		t.Errorf("four requests within %s at 100 a second", fast)
	}
}

func effectOfBurst(t *testing.T) {
	if fast := requestDuration(t, ", qps: 1, burst: 4"); fast > 2*time.Second {
		t.Errorf("four requests within %s with a burst of four", fast)
	}
}

func effectOfWatchList(t *testing.T) {
	for setting, want := range map[string]bool{"true": false, "false": true} {
		api := newAPI(t)
		p := serveAPI(t, api, ", watchList: "+setting, "")
		p.awaitAdmin("/readyz", http.StatusOK, "ok")
		listed := slices.ContainsFunc(api.Requests(), func(r apitest.Request) bool { return !r.Watch })
		if listed != want {
			t.Errorf("watchList: %s: plain lists were requested: %t, want %t", setting, listed, want)
		}
	}
}

func effectOfSilence(t *testing.T) {
	api := newAPI(t)
	p := serveAPI(t, api, ", silence: 1s", "")
	api.Misbehave(apitest.Fault{Silent: true})
	p.waitLog("kubernetes api is silent")
}

// snapshotOf runs a server until it has written a snapshot, and returns the file.
func snapshotOf(t *testing.T, api *apitest.Server) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "snapshot")
	p := serveAPI(t, api, "", "snapshot: {file: "+file+"}")
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	p.stop(syscall.SIGTERM)
	return file
}

// TestWarmStart checks that without the API server the content of the snapshot is served
// as stale, and current data once the API server is back.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	file := snapshotOf(t, api)
	before := serialOf(t, file)

	api.Misbehave(apitest.Fault{Status: http.StatusInternalServerError})
	p := startFromAPI(t, api, "", "snapshot: {file: "+file+"}")
	p.poll(patience, func() error { return wantError(p.ask("udp", question(web)), "NOERROR", dnswire.EDEStale) })
	if err := wantData(p.ask("udp", question(web)), "10.96.0.7"); err != nil {
		t.Error(err)
	}
	denied := p.ask("udp", question("wbe.shop.svc.cluster.local."))
	if err := wantError(denied, "NXDOMAIN", dnswire.EDEStaleNXDomain); err != nil || denied.Authority[0].TTL != 1 {
		t.Errorf("%v; want TTL 1\n%s", err, denied)
	}
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	p.awaitAdmin("/metrics", http.StatusOK, `portolan_source_state{kind="Service",state="snapshot"} 1`)

	api.Put(apiService("shop", "new", "10.96.0.10"))
	api.Delete(apiService("other", "web", ""))
	api.Misbehave(apitest.Fault{})
	p.await(patience, "new.shop.svc.cluster.local.", "10.96.0.10")
	p.awaitDenial(patience, otherWeb)
	p.poll(patience, func() error {
		if m := p.ask("udp", question(web)); len(m.Errors) > 0 {
			return fmt.Errorf("%v", m.Errors)
		}
		return nil
	})
	p.awaitAdmin("/metrics", http.StatusOK, `portolan_source_state{kind="Service",state="live"} 1`)
	p.waitLog("cluster loaded")
	p.stop(syscall.SIGTERM)
	if now := serialOf(t, file); int32(now-before) <= 0 {
		t.Errorf("serial %d after %d", now, before)
	}
}

// TestSnapshotTimeIsThatOfItsObjects checks that the time in a snapshot does not advance
// while the API server is unavailable, although it is written again, and that serials
// increase.
func TestSnapshotTimeIsThatOfItsObjects(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	file := snapshotOf(t, api)
	before, err := snapshot.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before.Heard = before.Heard.Add(-time.Minute)
	if err := before.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	api.Misbehave(apitest.Fault{Silent: true}) // responds without completing lists
	p := startFromAPI(t, api, "", "snapshot: {file: "+file+"}")
	p.poll(patience, func() error {
		return wantError(p.ask("udp", question("wbe.shop.svc.cluster.local.")), "SERVFAIL", dnswire.EDENotReady)
	})
	p.stop(syscall.SIGTERM)
	after, err := snapshot.ReadFile(file)
	if err != nil || after.Heard.Sub(before.Heard).Abs() > time.Second/2 || after.Serial <= before.Serial {
		t.Errorf("after a start without news: %v, heard %s, serial %d; before: %s, %d", err, after.Heard, after.Serial, before.Heard, before.Serial)
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// serialOf returns the serial of a server that starts with the file.
func serialOf(t *testing.T, file string) (serial uint32) {
	t.Helper()
	api := apitest.New(t)
	api.Misbehave(apitest.Fault{Status: http.StatusInternalServerError})
	copied := filepath.Join(t.TempDir(), "snapshot")
	write(t, copied, contents(t, file))
	p := startFromAPI(t, api, "", "snapshot: {file: "+copied+"}")
	m := p.ask("udp", dnswire.QuerySpec{Name: "cluster.local.", Type: dnswire.TypeSOA})
	var mname, rname string
	if _, err := fmt.Sscan(m.Answer[0].Data, &mname, &rname, &serial); err != nil {
		t.Fatal(err)
	}
	return serial
}

func wantError(m *dnswire.Message, status string, code dnswire.EDECode) error {
	if m.Status != status || len(m.Errors) == 0 || m.Errors[0].Code != uint16(code) {
		return fmt.Errorf("answer:\n%swant %s and error %d", m, status, code)
	}
	return nil
}

// TestDamagedSnapshotIsSetAside checks that a damaged snapshot is renamed and the server
// starts.
func TestDamagedSnapshotIsSetAside(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "snapshot")
	write(t, file, "portolan snapshot 2\nnot really")
	p := serveAPI(t, newAPI(t), "", "snapshot: {file: "+file+"}")
	p.waitLog("the snapshot cannot be used.*set aside as " + file + ".bad")
	if _, err := os.Stat(file + ".bad"); err != nil {
		t.Error(err)
	}
}

func effectOfSnapshotFile(t *testing.T) {
	if info, err := os.Stat(snapshotOf(t, newAPI(t))); err != nil || info.Size() == 0 {
		t.Errorf("snapshot: %v, %v", info, err)
	}
}

// effectOfSettle uses an API server that responds but does not complete lists.
func effectOfSettle(t *testing.T) {
	api := newAPI(t)
	file := snapshotOf(t, api)
	api.Misbehave(apitest.Fault{Silent: true})
	for settle, want := range map[string]struct {
		status string
		code   dnswire.EDECode
	}{"1h": {"SERVFAIL", dnswire.EDENotReady}, "1ms": {"NXDOMAIN", dnswire.EDEStaleNXDomain}} {
		p := startFromAPI(t, api, "", "snapshot: {file: "+file+", settle: "+settle+"}")
		p.poll(patience, func() error {
			return wantError(p.ask("udp", question("wbe.shop.svc.cluster.local.")), want.status, want.code)
		})
	}
}

func effectOfAdminListen(t *testing.T) {
	p := serve(t, "admin: {listen: '127.0.0.1:0'}")
	p.awaitAdmin("/healthz", http.StatusOK, "ok")
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_build_info{")
	p.awaitAdmin("/debug/zone", http.StatusOK, "web.shop.svc.cluster.local.\t5\tIN\tA\t10.96.0.7\n")
	p.awaitAdmin("/debug/model", http.StatusOK, `"web"`)
	p.awaitAdmin("/debug/pprof/cmdline", http.StatusOK, "portolan")
	none := serve(t, "admin: {listen: ''}")
	if log := none.logged(); strings.Contains(log, "admin") {
		t.Errorf("without an address:\n%s", log)
	}
}

func effectOfDebug(t *testing.T) { wantOpened(t, "debug", "/debug/zone") }
func effectOfPProf(t *testing.T) { wantOpened(t, "pprof", "/debug/pprof/cmdline") }

// wantOpened checks that a key opens a page to addresses of this host that are not
// loopback.
func wantOpened(t *testing.T, key, path string) {
	t.Helper()
	host := ownAddress()
	if !host.IsValid() {
		t.Skip("this host has no address but loopback")
	}
	for setting, want := range map[string]int{"false": http.StatusForbidden, "true": http.StatusOK} {
		p := serve(t, "admin: {listen: '"+netip.AddrPortFrom(host, 0).String()+"', "+key+": "+setting+"}")
		p.awaitAdmin(path, want, "")
	}
}

func ownAddress() netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}
	}
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().Is4() && !prefix.Addr().IsLoopback() {
			return prefix.Addr()
		}
	}
	return netip.Addr{}
}

func effectOfMaxStaleness(t *testing.T) {
	for setting, want := range map[string]struct {
		status int
		words  string
	}{"100ms": {http.StatusServiceUnavailable, "Services are stale for "}, "0s": {http.StatusOK, "ok"}} {
		api := newAPI(t)
		p := serveAPI(t, api, "", "admin: {listen: '127.0.0.1:0', maxStaleness: "+setting+"}")
		p.awaitAdmin("/readyz", http.StatusOK, "ok")
		api.Misbehave(apitest.Fault{Status: http.StatusInternalServerError})
		api.Cut()
		p.awaitAdmin("/metrics", http.StatusOK, `portolan_source_state{kind="Service",state="stale"} 1`)
		p.awaitAdmin("/readyz", want.status, want.words)
		p.awaitAdmin("/readyz", want.status, "Services are stale for ")
		p.awaitAdmin("/debug/model", http.StatusOK, `"Service":"stale"`)
		p.await(patience, web, "10.96.0.7")
	}
}

// effectOfLameduck checks that a stopping server is not ready and answers for that long.
func effectOfLameduck(t *testing.T) {
	p := serve(t, "lameduck: 2s")
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.awaitAdmin("/readyz", http.StatusServiceUnavailable, "stopping")
	if err := wantData(p.ask("udp", question(web)), "10.96.0.7"); err != nil {
		t.Error(err)
	}
	p.wait()
	if code := p.state.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestQueryReadsTheAPI checks that one-shot commands read the API server.
func TestQueryReadsTheAPI(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	kubeconfig := api.Kubeconfig(t)
	for command, want := range map[string]string{
		"query " + web:       "web.shop.svc.cluster.local.\t5\tIN\tA\t10.96.0.7\n",
		"zone cluster.local": "web.other.svc.cluster.local.\t5\tIN\tA\t10.96.0.8\n",
	} {
		cmd := exec.Command("portolan", append(strings.Fields(command), "--kubeconfig", kubeconfig)...)
		if printed, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(printed), want) {
			t.Errorf("%q: %v\n%swant %q", cmd.Args, err, printed, want)
		}
	}
}

// TestQueryWithoutPermission checks that a command without permission fails immediately.
func TestQueryWithoutPermission(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusForbidden:    "verbs: [list, watch]",
		http.StatusUnauthorized: "told to refuse",
	} {
		api := newAPI(t)
		api.Misbehave(apitest.Fault{Status: status})
		cmd := exec.Command("portolan", "query", web, "--kubeconfig", api.Kubeconfig(t))
		begun := time.Now()
		printed, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(printed), want) || strings.Count(string(printed), "\n") != 1 {
			t.Errorf("status %d: %v\n%s; want exit status 2 and one line with %q", status, err, printed, want)
		}
		if took := time.Since(begun); took > patience/2 {
			t.Errorf("status %d: failed after %s", status, took)
		}
	}
}

// TestReadyzNamesMissingKinds checks that /readyz names the kinds that are not loaded.
func TestReadyzNamesMissingKinds(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	api.Misbehave(apitest.Fault{Status: http.StatusForbidden, Resource: "endpointslices"})
	p := serveAPI(t, api, "", "")
	p.awaitAdmin("/readyz", http.StatusServiceUnavailable, "EndpointSlices are not loaded: ")
	p.awaitAdmin("/readyz", http.StatusServiceUnavailable, `{apiGroups: ["discovery.k8s.io"], resources: [endpointslices], verbs: [list, watch]}`)
	if _, text := p.admin("/readyz"); strings.Contains(text, "Services are") {
		t.Errorf("readyz: %s; want EndpointSlices only", text)
	}
	api.Misbehave(apitest.Fault{})
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
}

// TestReload checks that the configuration is read again on SIGHUP and when the file
// changes, and that an invalid one leaves the current one in force.
func TestReload(t *testing.T) {
	t.Parallel()
	file := settings(t, "dns: {ttl: 7}")
	p := start(t, "--config", file)
	p.await(patience, web, "10.96.0.7")
	wantTTL := func(want uint32) {
		t.Helper()
		p.poll(patience, func() error {
			m := p.ask("udp", question(web))
			if len(m.Answer) != 1 || m.Answer[0].TTL != want {
				return fmt.Errorf("answer:\n%swant TTL %d", m, want)
			}
			return nil
		})
	}
	wantTTL(7)
	text := contents(t, file)
	set := func(ttl string) { write(t, file, strings.Replace(text, "ttl: 7", ttl, 1)) }

	set("ttl: 8")
	wantTTL(8)
	set("ttl: many")
	p.waitLog("the configuration cannot be used; the one before stays in force.*ttl")
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_config_reload_success 0")
	wantTTL(8)
	text += "lameduck: 1s\n"
	set("ttl: 9\n  udpSize: 1400\n  zones: [other.example]")
	p.waitLog(`these settings take effect at the next start.*keys=\[lameduck\]`)
	p.poll(patience, func() error { return wantData(p.ask("udp", question("web.shop.svc.other.example.")), "10.96.0.7") })
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_config_reload_success 1")
	p.awaitAdmin("/metrics", http.StatusOK, `zone="cluster.local."`) // the counters are retained
	readAgain := func() int { return strings.Count(p.logged(), `msg="configuration reloaded"`) }
	before := readAgain()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.poll(patience, func() error {
		if n := readAgain(); n != before+1 {
			return fmt.Errorf("read again %d times, want %d", n, before+1)
		}
		return nil
	})
}
