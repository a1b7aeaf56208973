package app

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"portolan.dev/portolan/test/namespace/namespacetest"
)

// inNamespace runs a function in a new network namespace.
func inNamespace(t *testing.T, run func()) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("network namespaces need root")
	}
	namespacetest.Do(t, namespacetest.New(t), run)
}

// TestTakeover: kube-proxy's rules are removed once, those that it adds again stay, and each is
// logged once.
func TestTakeover(t *testing.T) {
	t.Parallel()
	inNamespace(t, func() {
		nft := func(args ...string) string {
			out, err := exec.CommandContext(t.Context(), "nft", args...).CombinedOutput()
			if err != nil {
				t.Errorf("nft %s: %v\n%s", strings.Join(args, " "), err, out)
			}
			return string(out)
		}
		var log bytes.Buffer
		take := &takeover{log: slog.New(slog.NewTextHandler(&log, nil))}
		for _, name := range []string{"kube-proxy", "others"} {
			nft("add", "table", "ip", name)
		}
		for step, want := range []struct{ add, has, logged string }{
			{"", "table ip others\n", `level=INFO msg="removed the rules of kube-proxy" removed="\[table ip kube-proxy\]"`},
			{"", "table ip others\n", ""},
			{"kube-proxy", "table ip others\ntable ip kube-proxy\n", `level=WARN msg="kube-proxy runs .*stop it.*" rules="\[table ip kube-proxy\]"`},
		} {
			if want.add != "" {
				nft("add", "table", "ip", want.add)
			}
			log.Reset()
			take.step()
			if has := nft("list", "tables"); has != want.has {
				t.Errorf("step %d: tables\n%swant\n%s", step, has, want.has)
			}
			if matches := regexp.MustCompile(want.logged).MatchString(log.String()); !matches || want.logged == "" && log.Len() > 0 {
				t.Errorf("step %d: logged %q, want %s", step, log.String(), want.logged)
			}
		}
	})
}
