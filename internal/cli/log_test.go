package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/forward"
)

// TestLogJSON checks that the JSON log shows values with a String method as that
// string.
func TestLogJSON(t *testing.T) {
	server, err := forward.ParseUpstream("tcp://10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	var line bytes.Buffer
	newLogger(config.Log{Level: "info", Format: "json"}, new(slog.LevelVar), &line).
		Info("followed", "zone", dnsname.MustParse("cluster.local"), "server", server, "client", netip.MustParseAddr("10.0.0.2"), "n", 7)
	var got map[string]any
	if err := json.Unmarshal(line.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	want := map[string]any{"level": "INFO", "msg": "followed", "zone": "cluster.local.", "server": "tcp://10.0.0.1:53", "client": "10.0.0.2", "n": 7.0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}
