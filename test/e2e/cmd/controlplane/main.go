// Command controlplane runs a Kubernetes control plane on loopback until it is
// interrupted, and prints the administrator's kubeconfig file. With -prepare it
// only builds the programs, for what runs later.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"portolan.dev/portolan/test/e2e/controlplane"
)

func main() {
	prepare := flag.Bool("prepare", false, "build the programs, and end")
	controllers := flag.Bool("controllers", true, "run kube-controller-manager")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *prepare, *controllers); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, prepare, controllers bool) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if prepare {
		_, err := controlplane.Prepare(ctx, log)
		return err
	}
	c, err := controlplane.Start(ctx, controlplane.Options{ControllerManager: controllers, Log: log})
	if err != nil {
		return err
	}
	fmt.Println(c.Kubeconfig())
	<-ctx.Done()
	return c.Close()
}
