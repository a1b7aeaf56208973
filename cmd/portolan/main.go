// Command portolan makes a Kubernetes cluster reachable: names, addresses, policies and routes.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"portolan.dev/portolan/internal/cli"
	_ "portolan.dev/portolan/internal/cni/pluginmain" // ends the program if a container runtime calls it
)

func main() { os.Exit(run()) }

func run() int {
	// If the program's file has capabilities, as in the image, the runtime by default prints
	// no stack of a panic.
	debug.SetTraceback("single")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal stops the program gracefully; the second one kills it.
	context.AfterFunc(ctx, stop)
	return cli.Run(ctx, os.Args, os.Stdout, os.Stderr)
}
