//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cli"
	"portolan.dev/portolan/internal/support/evidence"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"admin.evidence.size": func(t *testing.T) {
			wantEvents(t, "size: 3, oneIn: 1", web, 3)
			p := serveEvidence(t, "size: 0")
			if status, _ := p.admin(evidence.TailPath); status != http.StatusNotFound {
				t.Errorf("GET %s with admin.evidence.size 0: status %d, want %d", evidence.TailPath, status, http.StatusNotFound)
			}
		},
		"admin.evidence.oneIn": func(t *testing.T) {
			wantEvents(t, "oneIn: 1", web, 10)
			wantEvents(t, "oneIn: 1000000", web, 0)
		},
		"admin.evidence.perSecond": func(t *testing.T) {
			wantEvents(t, "oneIn: 1000000, perSecond: 100", absent, 10)
			wantEvents(t, "oneIn: 1000000, perSecond: 0", absent, 0)
		},
		"admin.evidence.maskClients": func(t *testing.T) {
			for mask, want := range map[string]string{"none": "127.0.0.1", "prefix": "127.0.0.0/24", "all": ""} {
				p := serveEvidence(t, "oneIn: 1, maskClients: "+mask)
				p.ask("udp", question(web))
				for _, e := range p.events() {
					if got := e.ClientText(); got != want {
						t.Errorf("with maskClients: %s the client is %q, want %q", mask, got, want)
					}
				}
			}
		},
	})
}

// absent is the name of a Service that does not exist.
const absent = "absent.shop.svc.cluster.local."

func serveEvidence(t *testing.T, setting string) *process {
	t.Helper()
	return serveUnchecked(t, "admin: {listen: '"+anyPort+"', evidence: {"+setting+"}}")
}

// wantEvents checks the number of events of ten queries.
func wantEvents(t *testing.T, setting, name string, want int) {
	t.Helper()
	p := serveEvidence(t, setting)
	for range 10 {
		p.ask("udp", question(name))
	}
	if got := len(p.events()); got != want {
		t.Errorf("%s: %d events of ten queries for %s, want %d", setting, got, name, want)
	}
}

// events returns the events that the process keeps.
func (p *process) events() (all []evidence.Event) {
	p.t.Helper()
	status, body := p.admin(evidence.TailPath)
	if status != http.StatusOK {
		p.t.Fatalf("GET %s: %d %s", evidence.TailPath, status, body)
	}
	for line := range strings.Lines(body) {
		var e evidence.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.t.Fatalf("GET %s: line %q: %v", evidence.TailPath, line, err)
		}
		all = append(all, e)
	}
	return all
}

// command runs a command that asks the process.
func (p *process) command(args string) (stdout, stderr string, status int) {
	p.t.Helper()
	var out, errors bytes.Buffer
	at := p.waitLog(`serving.*admin\W+([0-9.]+:\d+)`)[1]
	status = cli.Run(p.t.Context(), append(strings.Fields("portolan "+args), "--admin", at), &out, &errors)
	return out.String(), errors.String(), status
}

// TestEvidence has a server tell of a name that does not exist, by its pages and commands.
func TestEvidence(t *testing.T) {
	t.Parallel()
	p := serveEvidence(t, "oneIn: 1")
	p.ask("udp", question(absent))
	p.ask("tcp", question(absent))
	p.ask("udp", question(web))
	_, body := p.admin(evidence.TopPath + "?reason=no-service")
	if want := `"reason":"no-service","key":"` + absent + `","count":2,"share":1}`; !strings.Contains(body, want) {
		t.Errorf("GET %s = %s, want it with %s", evidence.TopPath, body, want)
	}
	_, metrics := p.admin("/metrics")
	if want := fmt.Sprintf("portolan_evidence_events_total{kind=%q} ", "query"); !strings.Contains(metrics, want) {
		t.Errorf("/metrics has no %s", want)
	}
	for args, want := range map[string]string{
		"tail --reason no-service --client 127.0.0.0/8": "query   no-service      127.0.0.1            " + absent + " A\n",
		"tail --reason ok --subject WEB.":               "query   ok              127.0.0.1            " + web + " A\n",
		"tail --kind query --reason no-service -o json": `"subject":"` + absent + `","detail":"A","weight":1}`,
		"top":                                "query   no-service   2       100.0%   " + absent + "\n",
		"top --by client --reason ok":        "127.0.0.1\n",
		"top --reason refused":               "no such events since ",
		"top --reason no-service -o json":    `"count": 2,`,
		"top --kind query --by subject -n 1": "KIND    REASON       COUNT   SHARE    SUBJECT\n",
	} {
		out, errors, _ := p.command(args)
		if !strings.Contains(out, want) || errors != "" {
			t.Errorf("portolan %s prints\n%s%swant it with\n%s", args, out, errors, want)
		}
	}
	for args, want := range map[string]string{
		"tail --kind drop":    `this process has no events of the kind "drop"`,
		"top --reason policy": `this process has no events with the reason "policy"`,
		"top --by name":       `by: "name" is not one of subject, client and route`,
		"top -n 0":            `limit: "0" is not a number from 1 to 65536`,
	} {
		if _, errors, status := p.command(args); status != 2 || !strings.HasSuffix(errors, ": "+want+"\n") {
			t.Errorf("portolan %s: status %d, %q; want 2 and %q", args, status, errors, want)
		}
	}
}
