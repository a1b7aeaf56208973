// Command live measures Portolan beside CoreDNS, on one real Kubernetes API
// server in one run, and prints a table in Markdown. See docs/bench.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"portolan.dev/portolan/test/e2e/controlplane"
)

// settings are what the command line says, and what else the table says.
type settings struct {
	sizes   sizes
	rounds  int
	changes int
	write   string
	keep    bool

	// Of this run.
	commit, machine string
}

func main() {
	var s settings
	flag.IntVar(&s.sizes.namespaces, "namespaces", 100, "Namespaces")
	flag.IntVar(&s.sizes.services, "services", 10_000, "Services with a cluster IP, 3 endpoints each")
	flag.IntVar(&s.sizes.headless, "headless", 500, "headless Services, 20 endpoints each")
	flag.IntVar(&s.sizes.pods, "pods", 100_000, "Pods in the second half; 0 leaves that out")
	flag.IntVar(&s.rounds, "rounds", 5, "how often everything is measured")
	flag.IntVar(&s.changes, "changes", 500, "changes of EndpointSlices that are timed, each time")
	flag.StringVar(&s.write, "write", "", "put the table into this `FILE`, too, between the marks")
	flag.BoolVar(&s.keep, "keep", false, "measure nothing; keep the cluster until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s *settings) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	klog.SetLogger(logr.Discard()) // of client-go, which complains of what is wanted here
	dir, err := os.MkdirTemp("", "portolan-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binaries, err := build(ctx, log, dir)
	if err != nil {
		return err
	}
	s.commit, s.machine = binaries.commit, describeMachine()
	api, err := controlplane.Start(ctx, controlplane.Options{Log: log})
	if err != nil {
		return err
	}
	defer api.Close()
	b := &bench{settings: s, log: log, api: api, dir: dir, contenders: []*contender{
		theirs: coreDNS(binaries, dir), ours: portolan(binaries, dir),
		oursWarm: portolan(binaries, dir, "--snapshot", filepath.Join(dir, "snapshot")),
	}}
	if b.writer, err = newWriter(api.RESTConfig()); err != nil {
		return err
	}
	log.Info("filling the cluster", "services", s.sizes.services, "headless", s.sizes.headless)
	if err := b.writer.fill(ctx, s.sizes); err != nil {
		return err
	}
	if s.keep {
		log.Info("keeping the cluster", "kubeconfig", api.Kubeconfig())
		if err := b.writer.fillPods(ctx, s.sizes); err != nil {
			return err
		}
		log.Info("it has its pods, too")
		<-ctx.Done()
		return nil
	}
	halves, err := b.measure(ctx)
	if err != nil {
		return err
	}
	table := markdown(s, halves)
	fmt.Print(table)
	if s.write != "" {
		return writeInto(s.write, table)
	}
	return nil
}

// measure measures the cluster without Pods, and then with them.
func (b *bench) measure(ctx context.Context) (halves []*half, err error) {
	s := b.settings
	bare := s.sizes
	bare.pods = 0
	h, err := b.half(ctx, bare)
	if err != nil || s.sizes.pods == 0 {
		return []*half{h}, err
	}
	b.log.Info("adding pods", "pods", s.sizes.pods)
	if err := b.writer.fillPods(ctx, s.sizes); err != nil {
		return nil, err
	}
	full, err := b.half(ctx, s.sizes)
	return []*half{h, full}, err
}
