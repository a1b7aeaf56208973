package interop

import (
	"encoding/xml"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"portolan.dev/portolan/test/await"
)

// h2spec is the program that TestH2Spec runs: its newest version that Go's module proxy has.
const h2spec = "github.com/summerwind/h2spec/cmd/h2spec"

// report is what h2spec reports in the format of JUnit.
type report struct {
	Cases []testCase `xml:"testsuite>testcase"`
}

// testCase is a test. Those that failed have an error or a failure.
type testCase struct {
	Section string    `xml:"package,attr"`
	Claim   string    `xml:"classname,attr"`
	Skipped *struct{} `xml:"skipped"`
	Failure *string   `xml:"failure"`
	Error   *string   `xml:"error"`
}

// named returns the names of the tests of which something holds.
func (r report) named(holds func(c testCase) bool) (names []string) {
	for _, c := range r.Cases {
		if holds(c) {
			names = append(names, c.Section+": "+c.Claim)
		}
	}
	return names
}

func (r report) failed() []string {
	return r.named(func(c testCase) bool { return c.Failure != nil || c.Error != nil })
}

func (r report) skipped() []string { return r.named(func(c testCase) bool { return c.Skipped != nil }) }

// TestH2Spec runs h2spec against the gateway, and against http.Server alone with the same handler: the gateway must not
// fail where that passes.
func TestH2Spec(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "h2spec")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, h2spec).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", h2spec, err, out)
	}
	endpoint := servePages(t, (*httptest.Server).Start)
	g := startGateway(t, endpoint, endpoint)
	awaitPage(t, g.plain())
	for way, test := range map[string]struct {
		gateway, alone string
		flags          []string
	}{
		"h2c": {g.plain(), endpoint.String(), nil},
		"TLS": {g.tls(), servePages(t, (*httptest.Server).StartTLS).String(), []string{"--tls", "--insecure"}},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var of, alone report
			var both sync.WaitGroup
			both.Go(func() { of = try(t, program, test.gateway, test.flags) })
			both.Go(func() { alone = try(t, program, test.alone, test.flags) })
			both.Wait()
			if len(of.Cases) < 100 || len(alone.Cases) != len(of.Cases) {
				t.Fatalf("%d tests of the gateway and %d of http.Server alone", len(of.Cases), len(alone.Cases))
			}
			known := alone.failed()
			t.Logf("%d tests, skipped %q; http.Server alone fails %d: %q", len(of.Cases), of.skipped(), len(known), known)
			t.Logf("the gateway fails %d: %q", len(of.failed()), of.failed())
			for _, name := range of.failed() {
				if !slices.Contains(known, name) {
					t.Errorf("the gateway fails, and http.Server alone does not: %s", name)
				}
			}
		})
	}
}

// try runs h2spec against an address.
func try(t *testing.T, program, addr string, flags []string) (r report) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Error(err)
		return r
	}
	file := filepath.Join(t.TempDir(), "report.xml")
	args := append([]string{"--host", host, "--port", port, "--junit-report", file}, flags...)
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) { // the status is 1 if a test fails
		t.Error(err)
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = xml.Unmarshal(text, &r)
	}
	if err != nil {
		t.Errorf("%s %q: %v\n%s", program, args, err, out)
	}
	return r
}

// servePages starts an http.Server for HTTP/1.1 and HTTP/2, which answers everything with a short text.
func servePages(t *testing.T, start func(s *httptest.Server)) net.Addr {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strings.Repeat("a page ", 10))
	}))
	s.EnableHTTP2 = true
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(s)
	t.Cleanup(s.Close)
	return s.Listener.Addr()
}

// awaitPage waits until an address serves the page.
func awaitPage(t *testing.T, addr string) {
	t.Helper()
	await.NoError(t, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	})
}
