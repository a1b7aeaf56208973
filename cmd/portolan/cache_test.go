//go:build unix

package main

import (
	"strings"
	"testing"
)

// TestCacheCommands checks that the cache of a running server is printed and flushed, and
// that a flushed name is asked for again.
func TestCacheCommands(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, answersWith("192.0.2.1"))
	p := serve(t, routeTo(up))
	admin := p.waitLog(`serving.*admin\W+([0-9.]+:\d+)`)[1]
	wantAnswer(t, p, "www.cached.example.", "192.0.2.1")
	wantAnswer(t, p, "www.other.example.", "192.0.2.1")
	for _, step := range []struct {
		claim          string
		args           []string
		status         int
		stdout, stderr string
	}{
		{"a dump has the entries", []string{"dump"}, 0, "www.cached.example.", ""},
		{"a flush of nothing", []string{"flush", "absent.example"}, 0, "removed 0 entries\n", ""},
		{"a flush of a domain", []string{"flush", "cached.example"}, 0, "removed 1 entry\n", ""},
		{"others stay", []string{"dump"}, 0, "www.other.example.", ""},
		{"a malformed name", []string{"flush", "a..b"}, 2, "", "portolan: "},
		{"no server", []string{"dump", "--admin", "127.0.0.1:1"}, 2, "", "portolan: the server's admin address does not answer: "},
		{"no address", []string{"dump", "--admin", "here"}, 2, "", `portolan: --admin: "here" is not an address and port`},
	} {
		args := append([]string{"cache"}, step.args...)
		if !strings.Contains(strings.Join(args, " "), "--admin") {
			args = append(args, "--admin", admin)
		}
		stdout, stderr, status := command(t, nil, args...)
		if status != step.status || !strings.Contains(stdout, step.stdout) || !strings.HasPrefix(stderr, step.stderr) {
			t.Errorf("%s: %q: status %d, stdout %q, stderr %q; want %d, %q and %q", step.claim, args, status, stdout, stderr,
				step.status, step.stdout, step.stderr)
		}
	}
	before := up.count("www.cached")
	wantAnswer(t, p, "www.cached.example.", "192.0.2.1")
	if up.count("www.cached") != before+1 {
		t.Errorf("after the flush the upstream was asked %d times, want %d", up.count("www.cached"), before+1)
	}
}

// TestDebugConfig checks that the settings in force are shown, without secrets.
func TestDebugConfig(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	p := serve(t, "dns: {ttl: 7, cookies: {secrets: ['"+secret+"']}}")
	status, body := p.admin("/debug/config")
	if status != 200 || !strings.Contains(body, "ttl: 7") || strings.Contains(body, secret) || !strings.Contains(body, "(secret)") {
		t.Errorf("/debug/config: %d\n%s", status, body)
	}
}
