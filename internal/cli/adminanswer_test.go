package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/support/evidence"
)

// runAt runs a command that talks to the admin address of a server with the handler. It returns what it printed.
func runAt(t *testing.T, handler http.HandlerFunc, args ...string) (stdout, stderr string) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	var out, words bytes.Buffer
	Run(t.Context(), append(append([]string{"portolan"}, args...), "--admin", server.Listener.Addr().String()), &out, &words)
	return out.String(), words.String()
}

// TestHostileAdminAnswers has another program listen at the admin address, which answers with control sequences: none
// reaches the terminal.
func TestHostileAdminAnswers(t *testing.T) {
	t.Parallel()
	const bad = "\x1b]0;title\x07\x1b[2Jx\u009b31m\u202ey"
	escaped, err := json.Marshal(bad)
	if err != nil {
		t.Fatal(err)
	}
	event := `{"time":"2026-11-27T10:00:00.123Z","kind":` + string(escaped) + `,"reason":"a` + "\u009b" + `b","subject":` +
		string(escaped) + `,"weight":1}` + "\n"
	item := `{"kind":` + string(escaped) + `,"reason":` + string(escaped) + `,"key":` + string(escaped) + `,"count":1}`
	for what, of := range map[string]struct {
		body string
		args []string
	}{
		"tail":               {event, []string{"tail"}},
		"tail as JSON":       {event, []string{"tail", "-o", "json"}},
		"top":                {`{"since":"2026-11-27T10:00:00Z","items":[` + item + `]}`, []string{"top"}},
		"an explanation":     {bad + "\nz", []string{"explain", "web", "--from", "outside"}},
		"with colors":        {bad + "\x1b[1mz\x1b[0m", []string{"explain", "web", "--from", "outside", "--color", "always"}},
		"JSON of an explain": {`{"target":"` + bad + `"}`, []string{"explain", "web", "--from", "outside", "-o", "json"}},
		"a dump":             {bad, []string{"cache", "dump"}},
	} {
		stdout, stderr := runAt(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(podapp.ExitField, "0")
			_, _ = io.WriteString(w, of.body)
		}, of.args...)
		if stderr != "" || stdout == "" {
			t.Errorf("%s: %q: stdout %q, stderr %q", what, of.args, stdout, stderr)
		}
		shown := colors.ReplaceAllString(stdout, "")
		if what != "with colors" {
			shown = stdout
		} else if !strings.Contains(stdout, "\x1b[1mz\x1b[0m") {
			t.Errorf("%s: %q printed %q, without colors", what, of.args, stdout)
		}
		if strings.ContainsAny(shown, "\x1b\x07\u009b\u202e") {
			t.Errorf("%s: %q printed control characters: %q", what, of.args, stdout)
		}
	}
}

// TestEscapedControls has JSON mean the same after its control characters are escaped.
func TestEscapedControls(t *testing.T) {
	t.Parallel()
	const text = "a\u009bb\u202ec\U000e0001d é\u007f"
	before, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	after := escapeControls(before)
	var read string
	if err := json.Unmarshal(after, &read); err != nil || read != text || bytes.ContainsAny(after, "\u009b\u202e\u007f") {
		t.Errorf("escapeControls(%q) = %q, which means %q, error %v", before, after, read, err)
	}
}

// TestLongAdminAnswers has an answer that does not end, and one that is another address.
func TestLongAdminAnswers(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(podapp.ExitField, "0")
		for line := []byte(strings.Repeat("x", 1<<20)); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}
	elsewhere := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("a redirect was followed")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}
	explain := []string{"explain", "web", "--from", "outside"}
	for what, of := range map[string]struct {
		handler http.HandlerFunc
		args    []string
		want    string
	}{
		"endless counts":              {endless, []string{"top"}, "longer than 16 MiB"},
		"an endless explanation":      {endless, explain, "longer than 16 MiB"},
		"an endless line":             {endless, []string{"tail"}, "token too long"},
		"counts elsewhere":            {elsewhere, []string{"top"}, "Found"},
		"an explanation elsewhere":    {elsewhere, explain, "Found"},
		"events elsewhere":            {elsewhere, []string{"tail"}, "Found"},
		"packed counts, not unpacked": {packed, []string{"top"}, "invalid character"},
	} {
		if _, stderr := runAt(t, of.handler, of.args...); !strings.Contains(stderr, of.want) {
			t.Errorf("%s: %q: stderr %q, want %q", what, of.args, stderr, of.want)
		}
	}
}

// packed answers with gzip's format, though it was not asked for.
func packed(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") || r.URL.Path != evidence.TopPath {
		http.Error(w, "asked for gzip", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write([]byte("\x1f\x8b\x08\x00"))
}
