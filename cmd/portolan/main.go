// Command portolan serves the names of a Kubernetes cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"portolan.dev/portolan/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	// Where the program's file has capabilities, as the image's has, the runtime
	// says nothing of where a panic was, unless it is told to.
	debug.SetTraceback("single")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks to stop; the next does what signals do.
	context.AfterFunc(ctx, stop)
	return cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
