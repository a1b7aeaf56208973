package netns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// explained is what the tests compare of the layer name of `portolan explain -o json`.
type explained struct {
	ResolvConf string `json:"resolvConf"`
	Outcome    string `json:"outcome"`
	Packets    int    `json:"packets"`
	Tries      []struct {
		Name    string `json:"name"`
		Queries []struct {
			Server netip.Addr `json:"server"`
			Type   string     `json:"type"`
			TCP    bool       `json:"tcp"`
			Round  int        `json:"round"`
		} `json:"queries"`
	} `json:"tries"`
}

// explain predicts by what `portolan explain --live` prints for a Pod with the
// lookup's resolv.conf, which becomes this namespace's, as it prints it.
func (w *world) explain(t *testing.T, l stubresolver.Lookup, kind, program string) predicted {
	t.Helper()
	args := []string{"explain", "--live", "-o", "json", "--libc", program, "--manifests", w.manifests, "-f", podOf(t, l.Conf)}
	if l.Type != 0 {
		args = append(args, "--type", kind)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(w.dir, "portolan"), append(args, "--", l.Name)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the status says that nothing was found
	var all struct{ Name explained }
	if err := json.Unmarshal(stdout.Bytes(), &all); err != nil {
		t.Fatalf("%q prints %q, %s: %v", cmd.Args, stdout.String(), stderr.String(), err)
	}
	e := &all.Name
	write(t, "/etc/resolv.conf", e.ResolvConf)
	trace := stubresolver.Trace{}
	for _, try := range e.Tries {
		made := stubresolver.Candidate{Name: try.Name}
		for _, q := range try.Queries {
			for len(made.Rounds) < q.Round {
				made.Rounds = append(made.Rounds, nil)
			}
			made.Rounds[q.Round-1] = append(made.Rounds[q.Round-1], stubresolver.Exchange{
				Server: q.Server,
				Query:  stubresolver.Query{Name: try.Name, Type: typeOf(t, q.Type), TCP: q.TCP},
			})
		}
		trace.Candidates = append(trace.Candidates, made)
	}
	if trace.Packets() != e.Packets {
		t.Errorf("%q says %d packets of\n%s", cmd.Args, e.Packets, stdout.String())
	}
	return expect(&trace, e.Outcome, l.Libc)
}

func typeOf(t *testing.T, text string) dnswire.Type {
	t.Helper()
	qtype, err := dnswire.ParseType(text)
	if err != nil {
		t.Fatal(err)
	}
	return qtype
}

// podOf is the manifest of a Pod with this resolv.conf.
func podOf(t *testing.T, c resolvconf.Config) string {
	t.Helper()
	var options []string
	for _, o := range c.Options {
		options = append(options, fmt.Sprintf("{name: %s, value: %q}", o.Name, o.Value))
	}
	var servers []string
	for _, addr := range c.Nameservers {
		servers = append(servers, addr.String())
	}
	path := filepath.Join(t.TempDir(), "pod.yaml")
	write(t, path, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop}
spec:
  containers: [{name: c, image: i}]
  dnsPolicy: None
  dnsConfig:
    nameservers: [%s]
    searches: [%s]
    options: [%s]
`, strings.Join(servers, ", "), strings.Join(c.Searches, ", "), strings.Join(options, ", ")))
	return path
}
