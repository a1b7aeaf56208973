package interop

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"testing"
	"time"
)

// available is what slowhttptest says at the end of whether its own requests were answered meanwhile.
var available = regexp.MustCompile(`service available:[^A-Z]*(YES|NO)`)

// TestSlowhttptest has slowhttptest attack with 500 slow connections in each of its modes, while another client sends
// requests, all of which must be answered soon.
func TestSlowhttptest(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("slowhttptest")
	if err != nil {
		t.Skip("slowhttptest is missing; install it (Debian: apt-get install slowhttptest)")
	}
	endpoint := servePages(t, (*httptest.Server).Start)
	g := startGateway(t, endpoint, endpoint)
	awaitPage(t, g.plain())
	const seconds, connections = "5", "500"
	for mode, flags := range map[string][]string{
		"slow heads (Slowloris)":    {"-H", "-i", "2", "-x", "24"},
		"slow bodies":               {"-B", "-i", "2", "-s", "8192", "-x", "10"},
		"overlapping ranges":        {"-R", "-a", "10", "-b", "3000"},
		"slow reading of responses": {"-X", "-w", "1", "-y", "20", "-n", "5", "-z", "8", "-k", "3"},
	} {
		for way, url := range map[string]string{"HTTP": "http://" + g.plain() + "/", "HTTPS": "https://" + g.tls() + "/"} {
			args := append([]string{"-c", connections, "-r", "200", "-l", seconds, "-p", "3", "-u", url}, flags...)
			g.whileAttacked(t, mode+" over "+way, exec.CommandContext(t.Context(), program, args...))
		}
	}
}

// whileAttacked sends requests until an attack ends.
func (g *gateway) whileAttacked(t *testing.T, attack string, cmd *exec.Cmd) {
	t.Helper()
	const soon = 2 * time.Second
	ended := make(chan string, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "\n%v", err)
		}
		ended <- string(out)
	}()
	answered, slowest := 0, time.Duration(0)
	for {
		select {
		case out := <-ended:
			t.Logf("%s: %d requests were answered meanwhile, the slowest after %v", attack, answered, slowest)
			if answered < 10 {
				t.Errorf("%s: it did not attack for long:\n%s", attack, out)
			}
			if found := available.FindAllStringSubmatch(out, -1); len(found) == 0 || found[len(found)-1][1] != "YES" {
				t.Errorf("%s: slowhttptest was not served at the end:\n%s", attack, out)
			}
			return
		case <-time.After(100 * time.Millisecond):
			began := time.Now()
			if err := fetchPage(t.Context(), g.plain(), soon); err != nil {
				t.Errorf("%s: a request after %d: %v", attack, answered, err)
			}
			slowest = max(slowest, time.Since(began))
			answered++
		}
	}
}

// fetchPage sends a request on a connection of its own, which must be answered in time.
func fetchPage(ctx context.Context, addr string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	return nil
}
