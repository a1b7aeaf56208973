package nfnetlink_test

import (
	"context"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/nfnetlink"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "nft", command).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v\n%s", command, err, out)
	}
}

// TestWatch reports what other programs change of a table, and nothing else.
func TestWatch(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	command(t, "table ip own { set s { type ipv4_addr; }; }; table ip other")
	var l nfnetlink.Listener
	must(t, l.Listen())
	notices, ended := make(chan nfnetlink.Notice, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- l.Watch(ctx, "own", notices) }()
	for i := range 3 {
		command(t, "add chain ip other c"+strconv.Itoa(i))
		select {
		case got := <-notices:
			t.Errorf("notice %d of a change of another table", got)
		default:
		}
		command(t, "add element ip own s { 10.0.0."+strconv.Itoa(i)+" }")
		select {
		case got := <-notices:
			if got != nfnetlink.Changed {
				t.Errorf("notice %d, want %d", got, nfnetlink.Changed)
			}
		case <-time.After(patience):
			t.Fatal("no notice of a change")
		}
	}
	stop()
	must(t, <-ended)
}
