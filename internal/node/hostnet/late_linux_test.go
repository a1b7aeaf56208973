package hostnet_test

import (
	"log/slog"
	"testing"

	"portolan.dev/portolan/internal/node/hostnet"
)

// TestLateAnswer checks that a table whose state cannot be read because of a late
// response is checked and repaired through another socket.
func TestLateAnswer(t *testing.T) {
	if n := onNode(t); n == nil {
		return
	}
	for claim, c := range map[string]struct {
		lasting string
		repairs uint64
	}{
		"a table of the socket": {"", 1},
		"a table that stays":    {holder(t), 0},
	} {
		cfg := hostnet.Config{Addresses: locals, Port: port, Prefix: "portolan", Log: slog.New(slog.DiscardHandler)}
		if c.lasting != "" {
			cfg = cfg.Lasting(c.lasting)
		}
		agent, err := hostnet.Install(cfg)
		must(t, err)
		must(t, agent.Divert())
		must(t, agent.Confuse())
		for range 2 {
			agent.Look()
			if err := agent.Healthy(); err != nil {
				t.Errorf("%s: %v", claim, err)
			}
		}
		tables, err := rules(t).ListTables()
		must(t, err)
		if got := agent.Repairs(); len(tables) != 1 || got != c.repairs {
			t.Errorf("%s: %d tables, %d repairs, want 1 and %d", claim, len(tables), got, c.repairs)
		}
		must(t, agent.Close())
	}
}
