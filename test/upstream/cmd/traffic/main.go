//go:build linux

// Command traffic is what the Pods of package rolling run. "traffic serve" is a server; "traffic
// connect HOST:PORT" is a client, and each connection to it gets its figures as JSON. Both listen
// on port 8080.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"portolan.dev/portolan/test/upstream/traffic"
)

func main() {
	grace := flag.Duration("grace", 0, "how long the server accepts connections after SIGTERM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args(), *grace); err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, grace time.Duration) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve(ctx, grace)
	case len(args) == 2 && args[0] == "connect":
		return connect(ctx, args[1])
	default:
		return errors.New("usage: traffic [-grace DURATION] serve | connect HOST:PORT")
	}
}

func listen() (net.Listener, error) { return net.Listen("tcp", ":8080") }

func serve(ctx context.Context, grace time.Duration) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	l, err := listen()
	if err != nil {
		return err
	}
	return traffic.Server{Name: name, Grace: grace}.Serve(ctx, l)
}

// connect listens when a first connection has succeeded.
func connect(ctx context.Context, to string) error {
	client := &traffic.Client{Target: func() (string, error) { return to, nil }}
	if err := client.Await(ctx); err != nil {
		return err
	}
	l, err := listen()
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go client.Run(ctx)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		_ = json.NewEncoder(conn).Encode(client.Figures()) // who reads them reports an error
		conn.Close()
	}
}
