package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/testcert"
)

func init() {
	effects["admin.page"] = effectOfPage
	effects["admin.tokenFile"] = effectOfTokenFile
	effects["admin.tls.cert"] = effectOfAdminTLS
	effects["admin.tls.key"] = effectOfAdminTLS
	effects["admin.tls.clientCA"] = effectOfClientCA
}

// effectOfPage checks what the process reads for the page.
func effectOfPage(t *testing.T) {
	const explain = "/api/v1/explain?target=web.shop:80&from=10.0.0.1"
	for setting, want := range map[string]struct{ overview, explain int }{
		"process": {http.StatusOK, http.StatusNotImplemented},
		"cluster": {http.StatusOK, http.StatusOK},
		"off":     {http.StatusNotFound, http.StatusNotFound},
	} {
		p := serve(t, "admin: {listen: '"+anyPort+"', page: "+setting+"}")
		p.awaitAdmin("/api/v1/overview", want.overview, "")
		p.awaitAdmin(explain, want.explain, "")
	}
}

// farAdmin serves with settings of the section admin, on an address that is not loopback, and returns
// the address.
func farAdmin(t *testing.T, setting string) (addr string) {
	t.Helper()
	host := ownAddress()
	if !host.IsValid() {
		t.Skip("this host has no address but loopback")
	}
	p := serve(t, "admin: {listen: '"+netip.AddrPortFrom(host, 0).String()+"', "+setting+"}")
	return p.waitLog(`serving.*admin\W+([0-9.]+:\d+)`)[1]
}

// ask sends a request for the overview, and returns the status and the body.
func askOverview(t *testing.T, client *http.Client, base, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, base+"/api/v1/overview", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
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

// effectOfTokenFile checks that tokens let clients in that are not on loopback.
func effectOfTokenFile(t *testing.T) {
	const token = "correct horse battery staple"
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, token+"\n")
	with, without := "http://"+farAdmin(t, "tokenFile: '"+file+"'"), "http://"+farAdmin(t, "debug: false")
	for claim, test := range map[string]struct {
		base, token string
		want        int
	}{
		"the token":                  {with, token, http.StatusOK},
		"another one":                {with, "incorrect horse", http.StatusUnauthorized},
		"none":                       {with, "", http.StatusUnauthorized},
		"one where none is accepted": {without, token, http.StatusForbidden},
	} {
		if got, text := askOverview(t, http.DefaultClient, test.base, test.token); got != test.want {
			t.Errorf("%s: %d %s, want %d", claim, got, text, test.want)
		}
	}
}

// adminCertificate returns a certificate, and settings of admin.tls with it.
func adminCertificate(t *testing.T) (c *testcert.Certificate, setting string) {
	t.Helper()
	c, err := testcert.New("portolan.test", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	file, key, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c, fmt.Sprintf("cert: '%s', key: '%s'", file, key)
}

// effectOfAdminTLS checks that the admin address speaks TLS with the certificate, and HTTP without.
func effectOfAdminTLS(t *testing.T) {
	c, setting := adminCertificate(t)
	addr := farAdmin(t, "tls: {"+setting+"}")
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.Roots, ServerName: "portolan.test"},
	}}
	for _, base := range []string{"https://", "http://"} {
		answer, err := client.Get(base + addr + "/healthz")
		if err != nil {
			t.Errorf("GET %s%s/healthz: %v", base, addr, err)
			continue
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("GET %s%s/healthz: %s, want 200", base, addr, answer.Status)
		}
	}
}

// effectOfClientCA checks that a client's certificate lets it in.
func effectOfClientCA(t *testing.T) {
	c, setting := adminCertificate(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	certificate, _ := c.PEM()
	write(t, ca, string(certificate))
	base := "https://" + farAdmin(t, "tls: {"+setting+", clientCA: '"+ca+"'}")
	for claim, test := range map[string]struct {
		certificates []tls.Certificate
		want         int
	}{"with one": {[]tls.Certificate{c.TLS}, http.StatusOK}, "without": {nil, http.StatusForbidden}} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: c.Roots, ServerName: "portolan.test", Certificates: test.certificates,
		}}}
		if got, text := askOverview(t, client, base, ""); got != test.want {
			t.Errorf("a client %s: %d %s, want %d", claim, got, text, test.want)
		}
	}
}

// TestFarAdmin: commands that ask a running process reach one that is not on loopback with a token or a certificate.
func TestFarAdmin(t *testing.T) {
	t.Parallel()
	host := ownAddress()
	if !host.IsValid() {
		t.Skip("this host has no address but loopback")
	}
	const secret = "correct horse battery staple"
	c, err := testcert.New(host.String(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, secret+"\n")
	addr := farAdmin(t, fmt.Sprintf("page: cluster, tokenFile: '%s', tls: {cert: '%s', key: '%s', clientCA: '%[2]s'}", token, cert, key))
	secure := "https://" + addr
	commands := map[string][]string{
		"tail": {"tail"}, "top": {"top"}, "explain": {"explain", "192.0.2.1:80", "--from", "192.0.2.2"},
		"report": {"report", "--manifests", "../../examples/shop", "-o", "-"},
	}
	for claim, test := range map[string]struct {
		flags  []string
		stderr string // empty if it is answered
	}{
		"the token":            {[]string{"--admin", secure, "--admin-ca", cert, "--admin-token-file", token}, ""},
		"the certificate":      {[]string{"--admin", secure, "--admin-ca", cert, "--admin-cert", cert, "--admin-key", key}, ""},
		"nothing":              {[]string{"--admin", secure, "--admin-ca", cert}, "a token is needed, that of admin.tokenFile; --admin-token-file sends one"},
		"another authority":    {[]string{"--admin", secure, "--admin-token-file", token}, "certificate signed by unknown authority"},
		"the token in clear":   {[]string{"--admin", addr, "--admin-token-file", token}, "tokens are taken over https only"},
		"TLS without https":    {[]string{"--admin", addr, "--admin-ca", cert}, "go with TLS: --admin https://" + addr},
		"a URL with a path":    {[]string{"--admin", secure + "/x"}, "is not an address and port"},
		"one without its key":  {[]string{"--admin", secure, "--admin-cert", cert}, "--admin-cert and --admin-key go together"},
		"a file that is none":  {[]string{"--admin", secure, "--admin-ca", cert, "--admin-token-file", token + "x"}, "--admin-token-file: "},
		"no certificate in it": {[]string{"--admin", secure, "--admin-ca", token}, "no certificate in PEM"},
	} {
		for name, args := range commands {
			_, stderr, status := runCommand(t, append(slices.Clone(args), test.flags...))
			refused := strings.Contains(stderr, "portolan: "+secure) || strings.Contains(stderr, "/failures.json")
			if refused && test.stderr == "" || !strings.Contains(stderr, test.stderr) {
				t.Errorf("%s with %s: status %d, stderr %q, want %q", name, claim, status, stderr, test.stderr)
			}
			if strings.Contains(stderr, secret) {
				t.Errorf("%s with %s has the token in %q", name, claim, stderr)
			}
		}
	}
}

// TestPage verifies what `portolan page` prints and serves: the page for browsers, and the same explanations as the
// command gives.
func TestPage(t *testing.T) {
	t.Parallel()
	cluster := []string{"--manifests", "../../examples/trouble", "--simulate"}
	cmd := exec.Command("portolan", append([]string{"page", "--listen", anyPort}, cluster...)...)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = out
	p := follow(t, cmd)
	p.waitLog("manifests loaded")
	p.awaitAdmin("/api/v1/search?q=web", http.StatusOK, `"items":[{`)
	addr := p.waitLog(`serving.*admin\W+([0-9.]+:\d+)`)[1]
	if printed, err := os.ReadFile(out.Name()); err != nil || string(printed) != "http://"+addr+"/\n" {
		t.Errorf("%q printed %q, %v, want the URL with %s", cmd.Args, printed, err, addr)
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,*/*")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.HasPrefix(strings.ToLower(string(text)), "<!doctype html>") ||
		!strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("GET / of a browser: %v, %.80q, policy %q", err, text, answer.Header.Get("Content-Security-Policy"))
	}
	if _, paths := p.admin("/"); !strings.Contains(paths, "\n/api/v1/overview\n") {
		t.Errorf("GET / of curl: %q, want the list of paths", paths)
	}
	wantSameExplanations(t, addr, cluster)
	var overview struct {
		Counts map[string]int `json:"counts"`
	}
	if _, text := p.admin("/api/v1/overview"); json.Unmarshal([]byte(text), &overview) != nil ||
		overview.Counts["services"] == 0 {
		t.Errorf("GET /api/v1/overview: %s, want a count of Services", text)
	}
}

// wantSameExplanations checks that a server explains exactly what the command does that reads the cluster itself.
func wantSameExplanations(t *testing.T, admin string, cluster []string) {
	t.Helper()
	for _, question := range []string{
		"web.shop --from shop/deployment/web", "nothing.shop --from shop/deployment/web",
		"web.shop --from shop/deployment/web --libc musl --type SRV", "web.shop:80 --from shop/deployment/web",
		"web.shop:81 --from shop/deployment/web", "web.shop:80 --from outside", "10.96.0.1:443 --from 198.51.100.7",
		"http://shop.example.com/cart --method POST --header X-Env:test", "http://web.shop/ --from shop/deployment/web",
		"shop/deployment/web --to svc/shop/web:80", "shop/deployment/web --to 192.0.2.1:443/udp",
		"shop/absent --to svc/shop/web:80", "web.shop --from shop/absent", "web.shop --from outside",
		"web.shop:80 --from node --node absent", "web.shop:http:80 --from outside", "-- ",
	} {
		for _, format := range []string{"text", "json"} {
			args := append([]string{"explain", "-o", format}, strings.Split(question, " ")...)
			wantOut, wantErr, wantStatus := runCommand(t, append(slices.Clone(args[:3]), append(slices.Clone(cluster), args[3:]...)...))
			gotOut, gotErr, gotStatus := runCommand(t, append(slices.Clone(args[:3]), append([]string{"--admin", admin}, args[3:]...)...))
			if gotOut != wantOut || gotStatus != wantStatus {
				t.Errorf("portolan %q --admin: status %d, stderr %q, stdout\n%s\nand without: status %d, stderr %q, stdout\n%s",
					args, gotStatus, gotErr, gotOut, wantStatus, wantErr, wantOut)
			}
		}
	}
}

// runCommand runs portolan and returns what it prints and its exit status.
func runCommand(t *testing.T, args []string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command("portolan", args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("portolan %q: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
