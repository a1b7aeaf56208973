package socket

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
)

// TestLongRequests: a long request that takes its time does not keep another one waiting.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	handling, finish := make(chan struct{}), make(chan struct{})
	path := filepath.Join(t.TempDir(), "cni.sock")
	s, err := Listen(t.Context(), Config{
		Path: path,
		Handle: func(_ context.Context, r attach.Request) (*attach.Result, error) {
			if r.ContainerID == "slow" {
				close(handling)
				<-finish
			}
			return nil, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, answered := make(chan error), make(chan error)
	go func() { ended <- s.Run(ctx) }()
	call := func(id string) error {
		return attach.Call(time.Now().Add(handleTime), path, attach.Request{
			Verb: attach.Add, Ports: make([]attach.Port, shortRequest/10),
			Sandbox: attach.Sandbox{ID: attach.ID{ContainerID: id, Interface: "eth0"}},
		})
	}
	go func() { answered <- call("slow") }()
	<-handling
	if err := call("other"); err != nil {
		t.Errorf("a long request while another one is handled: %v", err)
	}
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the request that takes its time: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestBusy: where long requests have no room, the runtime is told to try again.
func TestBusy(t *testing.T) {
	t.Parallel()
	late := make(chan struct{})
	close(late)
	_, err := attach.Read(&gate{conn: strings.NewReader("{}"), long: make(chan struct{}), late: late})
	var reply bytes.Buffer
	if err := attach.WriteReply(&reply, nil, err); err != nil {
		t.Fatal(err)
	}
	if want := `"code":11}`; !strings.Contains(reply.String(), want) {
		t.Errorf("the reply to a long request is %s, want %s", &reply, want)
	}
}
