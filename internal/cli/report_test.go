package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/ops/report"
)

// planted are secrets in all places that a report reads, by where they are.
var planted = map[string]string{
	"token of the kubeconfig":     "PlantedKubeconfigToken",
	"private key of a Secret":     "PlantedTLSKeyOfSecret",
	"hash of a Secret":            "$2y$05$PlantedHashOfSecretxxxxx",
	"other Secret":                "PlantedOpaquePassword",
	"environment of a Pod":        "PlantedEnvironment",
	"annotation":                  "PlantedAnnotation",
	"cookie secret of the config": "00112233445566778899aabbccddeeff",
	"bearer in a log":             "PlantedBearer.of-a_log",
	"cookie in a log":             "PlantedCookieOfLog",
	"query string in a log":       "PlantedQueryOfLog",
	"user in a URL":               "PlantedUserOfURL",
	"private key in a log":        "PlantedPEMOfLog",
	"WireGuard key in a log":      "UGxhbnRlZFdpcmVHdWFyZFByaXZhdGVLZXlPZkxvZ3M=",
	"JWT in a log":                "eyJhbGciOiJIUzI1NiJ9.eyJQbGFudGVkIjoiSldUIn0.PlantedSignature",
	"JSON in a log":               "PlantedJSONOfLog",
	"setting of a process":        "PlantedSettingOfProcess",
	"argument of a process":       "PlantedArgumentOfProcess",
	"label of a metric":           "PlantedLabelOfMetric",
	"readiness":                   "PlantedReadiness",
	"message of a container":      "PlantedMessage",
}

// reportWorld is a cluster and a process with planted secrets.
type reportWorld struct{ kubeconfig, config, admin string }

func newReportWorld(t *testing.T) reportWorld {
	t.Helper()
	cluster := apitest.New(t)
	p := planted
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "portolan-node-x", Labels: map[string]string{"app.kubernetes.io/name": "portolan-node"},
			Annotations: map[string]string{"token": p["annotation"]},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Name: "portolan", Image: "portolan:v1", Args: []string{"--password=" + p["argument of a process"]},
			Env: []corev1.EnvVar{{Name: "TOKEN", Value: p["environment of a Pod"]}},
		}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "portolan", RestartCount: 1,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "Pulling", Message: p["message of a container"]}},
		}}},
	}
	cluster.Put(
		pod,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"auth-token": p["annotation"]}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.9", Selector: map[string]string{"app": "none"}},
		},
	)
	w := reportWorld{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), config: filepath.Join(t.TempDir(), "portolan.yaml")}
	api := apiWithLogs(t, cluster.URL())
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(w.kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, api, p["token of the kubeconfig"]))
	write(w.config, "dns: {cookies: {secrets: [\""+p["cookie secret of the config"]+"\"]}}\n")
	w.admin = adminWithSecrets(t)
	return w
}

// apiWithLogs adds a version and logs to an API server.
func apiWithLogs(t *testing.T, at string) string {
	t.Helper()
	to, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, kubeversion.Info{GitVersion: "v1.36.0", Platform: "linux/amd64"})
	})
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods/portolan-node-x/log", func(w http.ResponseWriter, r *http.Request) {
		p := planted
		fmt.Fprintf(w, "2026-01-01T00:00:00Z level=INFO msg=serving previous=%s client=192.0.2.77\n", r.URL.Query().Get("previous"))
		fmt.Fprintln(w, "Authorization: Bearer", p["bearer in a log"])
		fmt.Fprintln(w, `{"headers":{"Cookie":["session=`+p["cookie in a log"]+`; b=`+p["cookie in a log"]+`"]}}`)
		fmt.Fprintln(w, "GET http://web.shop/cart?token="+p["query string in a log"]+"&b=c 200")
		fmt.Fprintln(w, "upstream https://u:"+p["user in a URL"]+"@example.com/")
		fmt.Fprintln(w, "-----BEGIN EC PRIVATE KEY-----\n"+p["private key in a log"]+"\n-----END EC PRIVATE KEY-----")
		fmt.Fprintln(w, "key", p["WireGuard key in a log"], "jwt", p["JWT in a log"])
		fmt.Fprintln(w, `msg="{\"password\":\"`+p["JSON in a log"]+`\"}"`)
		fmt.Fprintln(w, "sent", p["token of the kubeconfig"], "last line")
	})
	mux.Handle("/", proxy)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// adminWithSecrets is an admin server whose pages have secrets.
func adminWithSecrets(t *testing.T) (addr string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, text := range map[string]string{
		"/healthz":             "ok\n",
		"/metrics":             `portolan_x_total{url="http://a/?key=` + planted["label of a metric"] + `"} 1` + "\n",
		"/debug/config":        "upstream:\n  password: " + planted["setting of a process"] + "\n  secretFile: /run/secret.key\n",
		"/debug/pprof/cmdline": "portolan\x00serve\x00--token=" + planted["argument of a process"],
		"/debug/pprof/heap":    "heap profile: " + strings.Repeat("0 0 [0: 0]\n", 500_000),
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Pods are not loaded: Authorization: Basic "+planted["readiness"], http.StatusServiceUnavailable)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// readReport reads an archive, by names without its directory.
func readReport(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		all[name] = string(text)
	}
}

func runReport(t *testing.T, args ...string) (files map[string]string, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	args = append([]string{"report", "-o", "-"}, args...)
	if status := Run(t.Context(), append([]string{"portolan"}, args...), &out, &words); status != exitDone {
		t.Fatalf("Run(%q) = %d, %s", args, status, words.String())
	}
	return readReport(t, out.Bytes()), words.String()
}

// TestReportHasNoSecrets checks that nothing secret is in any file of a report, that what is needed is, and that the
// index names each file.
func TestReportHasNoSecrets(t *testing.T) {
	t.Parallel()
	w := newReportWorld(t)
	files, stderr := runReport(t, "--kubeconfig", w.kubeconfig, "--config", w.config, "--admin", w.admin, "--admin", "127.0.0.1:1")
	files["standard error"] = stderr
	for name, text := range files {
		for where, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s has the %s: %q", name, where, secret)
			}
		}
	}
	dir := "process-" + strings.Replace(w.admin, ":", "-", 1)
	for name, words := range map[string]string{
		"version.txt":          "portolan version ",
		"config.yaml":          "cookies",
		dir + "/ready.txt":     "Pods are not loaded",
		dir + "/config.yaml":   "secretFile: /run/secret.key",
		dir + "/cmdline.txt":   "portolan serve --token=",
		dir + "/metrics.txt":   "portolan_x_total{",
		"cluster/objects.txt":  "services 1 live",
		"cluster/findings.txt": "shop/web",
		"cluster/versions.txt": "Kubernetes v1.36.0",
		"cluster/pods.json":    `"image": "portolan:v1"`,
		indexName:              "process-127.0.0.1-1: ",
		"logs/kube-system/portolan-node-x-portolan.log":          "last line",
		"logs/kube-system/portolan-node-x-portolan-previous.log": "previous=true client=192.0.2.77",
	} {
		if !strings.Contains(files[name], words) {
			t.Errorf("%s lacks %q: %.2000s", name, words, files[name])
		}
	}
	if size := len(files[dir+"/memory.txt"]); size != reportFileSize {
		t.Errorf("a page of 5 MiB has %d octets, want %d", size, reportFileSize)
	}
	for name := range files {
		if name != indexName && name != "standard error" && !strings.Contains(files[indexName], "  "+name+": ") {
			t.Errorf("the index does not name %s:\n%s", name, files[indexName])
		}
	}
}

// indexName is the name of the index.
const indexName = "INDEX"

// TestReportOfManifests checks that Secrets of manifests stay out, and names and addresses if that is asked for.
func TestReportOfManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `apiVersion: v1
kind: Secret
metadata: {name: users, namespace: shopping}
stringData: {auth: "admin:` + planted["hash of a Secret"] + `", tls.key: ` + planted["private key of a Secret"] + `, x: ` + planted["other Secret"] + `}
---
apiVersion: v1
kind: Service
metadata: {name: checkout, namespace: shopping}
spec: {clusterIP: 10.96.0.10, selector: {app: none}}
---
apiVersion: v1
kind: Service
metadata: {name: twin, namespace: shopping}
spec: {clusterIP: 10.96.0.10, selector: {app: none}}
`
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	plain, _ := runReport(t, "--manifests", dir, "--admin", "127.0.0.1:1")
	masked, stderr := runReport(t, "--manifests", dir, "--admin", "127.0.0.1:1", "--mask-clients", "--mask-names")
	masked["standard error"] = stderr
	for _, word := range []string{"shopping", "checkout", "10.96.0.10"} {
		if !strings.Contains(plain["cluster/findings.txt"], word) {
			t.Errorf("findings lack %q: %s", word, plain["cluster/findings.txt"])
		}
		for name, text := range masked {
			if strings.Contains(text, word) {
				t.Errorf("%s has %q, which is masked: %s", name, word, text)
			}
		}
	}
	for name, text := range plain {
		for where, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s has the %s", name, where)
			}
		}
	}
	if !strings.Contains(masked[indexName], "Addresses and names are pseudonyms.\nNot replaced: ") {
		t.Errorf("the index does not say that names are pseudonyms: %s", masked[indexName])
	}
}

// maskedManifests has names of all sorts that are told apart by their first letters: those that begin with "acme" are to be masked.
const maskedManifests = `apiVersion: v1
kind: Service
metadata: {name: acmefront, namespace: acmeshop}
spec: {clusterIP: 10.96.0.10, selector: {app: acmelabel}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: acmecart-0, namespace: acmeshop, labels: {app: acme_other}}
spec: {nodeName: acmenode, containers: [{name: c, image: registry.acme.example/cart}]}
status: {phase: Running, podIP: 10.1.0.5, podIPs: [{ip: 10.1.0.5}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: acmeroute, namespace: acmeshop}
spec:
  parentRefs: [{name: acmegateway}]
  hostnames: [acmewww.acme.example]
  rules:
  - backendRefs: [{name: acmefrontt, port: 80}]
  - backendRefs: [{name: acmeledger, namespace: acmebooks, port: 80}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: acmeingress, namespace: acmeshop}
spec:
  rules: [{host: acme.acme.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: acmecart, port: {number: 80}}}}]}}]
  tls: [{hosts: [acme.acme.example], secretName: acmetls}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: acmepolicy, namespace: acmeshop}
spec: {podSelector: {matchLabels: {app: acmenone}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: acmeteam}}}]}]}
`

// TestReportMasksNames checks that names are masked that no object has: those that clients ask for, that routes and
// selectors have, domains of the settings, and paths.
func TestReportMasksNames(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "acmedir")
	manifest, settings := filepath.Join(dir, "acme-secret.yaml"), filepath.Join(dir, "acme.yaml")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "dns: {forward: {routes: [{suffix: acmecorp, upstreams: [192.0.2.1]}, {suffix: acme.example, upstreams: [192.0.2.1]}]}}\n"
	for file, text := range map[string]string{manifest: maskedManifests, settings: text} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	for path, text := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ok\n", "/debug/config": text,
		"/metrics":             `portolan_x{zone="acmecorp.",route="acme.example."} 0.5` + "\n",
		"/debug/pprof/cmdline": "portolan\x00serve\x00--config=/etc/acme/c.yaml\x00--manifests\x00acmedir/x",
		"/api/v1/top": `{"items":[{"key":"acmecarts.acmeshop.svc.cluster.local."},{"key":"acmedb.acme.example."},` +
			`{"key":"acme."},{"key":"acmeapi.acme.com/cart"},{"key":"acmeshop/acmegone"}]}`,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	files, stderr := runReport(t, "--manifests", manifest, "--config", settings,
		"--admin", strings.TrimPrefix(server.URL, "http://"), "--mask-names")
	files["standard error"] = stderr
	for name, text := range files {
		if i := strings.Index(strings.ToLower(text), "acme"); i >= 0 {
			t.Errorf("%s has a name: %q", name, text[max(0, i-60):min(len(text), i+60)])
		}
	}
	for _, words := range []string{".yaml:", "spec.rules[0].backendRefs[0].name: Service name-", "does not exist (did you mean name-", "?): "} {
		if !strings.Contains(files["cluster/findings.txt"], words) {
			t.Errorf("findings lack %q: %s", words, files["cluster/findings.txt"])
		}
	}
	if !strings.Contains(files[indexName], "Not replaced: ") {
		t.Errorf("the index does not say what is not masked: %s", files[indexName])
	}
}

// TestReportMasksAdmins checks that no admin address is in the name of a file if names or addresses are masked,
// and that the archive and its index have the same names.
func TestReportMasksAdmins(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	t.Cleanup(server.Close)
	admin := strings.TrimPrefix(server.URL, "http://")
	plain := "process-" + strings.Replace(admin, ":", "-", 1)
	for flag, want := range map[string]string{"--mask-names": "process-2", "--mask-clients": "process-2", "--mask-names=false": plain} {
		files, _ := runReport(t, "--manifests", "../../examples/shop", "--admin", "127.0.0.1:1", "--admin", admin, flag)
		for _, page := range []string{"metrics.txt", "ready.txt"} {
			if name := want + "/" + page; files[name] == "" || !strings.Contains(files[indexName], "  "+name+": ") {
				t.Errorf("%s: there is no %s, or INDEX lacks it:\n%s", flag, name, files[indexName])
			}
		}
		if text := files[indexName]; want != plain && !strings.Contains(text, "  process-1: ") {
			t.Errorf("%s: INDEX lacks that process-1 does not answer:\n%s", flag, text)
		}
	}
	clean := report.NewCleaner()
	clean.MaskNames()
	addrs := []string{"https://acmehost:9153", "https://portolan.prod.acme:9153", "127.0.0.1:9153", "http://10.1.2.3:9153"}
	masker{clean}.admins(addrs)
	got := clean.Clean("the processes at " + strings.Join(addrs, ", "))
	if strings.Contains(got, "acme") || strings.Contains(got, "prod") ||
		!strings.Contains(got, "127.0.0.1:9153, http://10.1.2.3:9153") {
		t.Errorf("Clean of admin addresses = %q, want no names in it", got)
	}
}

// TestReportRefusesFlags checks that a report of what does not exist is refused, and that one of nothing is said to be so.
func TestReportRefusesFlags(t *testing.T) {
	t.Parallel()
	absent := filepath.Join(t.TempDir(), "absent")
	bad := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(bad, []byte("dns: {zone: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for claim, test := range map[string]struct {
		args   []string
		status int
		words  string
	}{
		"no manifests":          {[]string{"--manifests", absent}, exitUsage, "no such file"},
		"no configuration":      {[]string{"--config", absent}, exitUsage, "no such file"},
		"a wrong configuration": {[]string{"--config", bad}, exitUsage, "zone"},
		"no kubeconfig":         {[]string{"--kubeconfig", absent}, exitUsage, "no such file"},
		"a wrong address":       {[]string{"--admin", "nowhere"}, exitUsage, "is not an address and port"},
		"no process": {
			[]string{"--manifests", "../../examples/shop", "--admin", "127.0.0.1:1"}, exitDone, "process: no process answered",
		},
	} {
		var out, words bytes.Buffer
		args := append([]string{"portolan", "report", "-o", "-"}, test.args...)
		if status := Run(t.Context(), args, &out, &words); status != test.status || !strings.Contains(words.String(), test.words) {
			t.Errorf("%s: Run(%q) = %d, %s; want %d, %q", claim, args, status, words.String(), test.status, test.words)
		}
		if test.status == exitUsage && out.Len() > 0 {
			t.Errorf("%s: Run(%q) wrote %d octets", claim, args, out.Len())
		}
	}
}

// TestReportReplacesNoFile checks that an archive replaces no file, and that others cannot read it.
func TestReportReplacesNoFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	args := []string{"report", "--manifests", "../../examples/shop", "--admin", "127.0.0.1:1", "-o", file}
	var out, words bytes.Buffer
	if status := Run(t.Context(), append([]string{"portolan"}, args...), &out, &words); status != exitDone || !strings.Contains(out.String(), file) {
		t.Fatalf("Run(%q) = %d, %s %s", args, status, out.String(), words.String())
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want -rw-------", info.Mode(), err)
	}
	words.Reset()
	if status := Run(t.Context(), append([]string{"portolan"}, args...), &out, &words); status != exitUsage || !strings.Contains(words.String(), "exists") {
		t.Errorf("Run(%q) again = %d, %s; want a refusal", args, status, words.String())
	}
}
