package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPolicyLog: the command requests what its flags say, and prints the page's lines.
func TestPolicyLog(t *testing.T) {
	t.Parallel()
	const record = `{"time":"2026-03-01T10:00:00Z","event":"deny","direction":"egress","source":"10.244.1.7",` +
		`"sourcePod":"shop/web-1","destination":"192.0.2.9","protocol":"TCP","sourcePort":4000,"destinationPort":443,` +
		`"chain":"out-5f2a","reason":"NetworkPolicy shop/web","packets":2}`
	const line = "2026-03-01T10:00:00Z deny egress TCP shop/web-1 (10.244.1.7:4000) -> 192.0.2.9:443 (2 packets): " +
		"NetworkPolicy shop/web"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.String(); got != "/debug/policy/log?follow=&namespace=shop" {
			http.Error(w, got, http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(record + "\n\n" + record + "\n"))
	}))
	t.Cleanup(server.Close)
	for format, want := range map[string]string{"text": line, "json": record} {
		cmd := newPolicyLog()
		out := new(bytes.Buffer)
		cmd.SetOut(out)
		cmd.SetArgs([]string{
			"--admin", strings.TrimPrefix(server.URL, "http://"), "--follow", "--namespace", "shop", "-o", format,
		})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("policy log -o %s: %v", format, err)
		}
		if got := out.String(); got != want+"\n"+want+"\n" {
			t.Errorf("policy log -o %s prints\n%swant twice\n%s", format, got, want)
		}
	}
}
