package rig

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Main is the main function of a measurement, which has a directory of its own
// while it runs. An interrupt ends it; when it fails, so does the process.
func Main(measure func(ctx context.Context, log *slog.Logger, dir string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard()) // of client-go, which complains of what is wanted here
	if err := inDirectory(ctx, measure); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func inDirectory(ctx context.Context, measure func(context.Context, *slog.Logger, string) error) error {
	dir, err := os.MkdirTemp("", "portolan-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return measure(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)), dir)
}
