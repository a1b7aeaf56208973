package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Measurement runs a measurement. dir is a temporary directory for it.
type Measurement func(ctx context.Context, log *slog.Logger, dir string) error

// Suite is a kind of measurement, one subcommand of bench.
type Suite struct {
	Name  string // also the name of the marks in docs/bench.md
	Short string // a one-line description
	// Declare declares the suite's flags and returns the measurement that uses their
	// values.
	Declare func(*flag.FlagSet) Measurement
}

// RoundsFlag declares the flag for the number of rounds.
func RoundsFlag(flags *flag.FlagSet, rounds *int, usual int) {
	flags.IntVar(rounds, "rounds", usual, "measure everything `N` times")
}

// WriteFlag declares the flag for the file that receives the tables.
func WriteFlag(flags *flag.FlagSet, file *string) {
	flags.StringVar(file, "write", "", "put the tables into this `FILE`, too, between the marks")
}

// Main runs the suite named in args with the following flags, until it is done or
// interrupted, and returns the exit status.
func Main(suites []Suite, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard()) // client-go would log errors that are expected here
	if len(args) == 0 {
		usage(os.Stderr, suites)
		return 2
	}
	for _, s := range suites {
		if s.Name != args[0] {
			continue
		}
		flags := flag.NewFlagSet("bench "+s.Name, flag.ContinueOnError)
		measure := s.Declare(flags)
		switch err := flags.Parse(args[1:]); {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case err != nil:
			return 2
		}
		if err := inDirectory(ctx, measure); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	}
	fmt.Fprintf(os.Stderr, "bench: no suite %q\n", args[0])
	usage(os.Stderr, suites)
	return 2
}

func usage(w io.Writer, suites []Suite) {
	fmt.Fprintln(w, "Usage: bench SUITE [FLAGS], see docs/bench.md; SUITE is one of")
	for _, s := range suites {
		fmt.Fprintf(w, "  %-12s %s\n", s.Name, s.Short)
	}
}

func inDirectory(ctx context.Context, measure Measurement) error {
	dir, err := os.MkdirTemp("", "portolan-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return measure(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)), dir)
}
