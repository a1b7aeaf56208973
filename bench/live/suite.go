// Package live measures Portolan and CoreDNS on one real Kubernetes API server in one
// run, and prints a table in Markdown. See docs/bench.md.
package live

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// settings are the values of the flags, and further facts for the table.
type settings struct {
	cluster synthetic.Cluster
	rounds  int
	changes int
	write   string
	keep    bool
	parts   map[part]bool

	// These describe this run.
	commit, machine string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "live", Short: "Portolan beside CoreDNS on one real API server", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	flags.IntVar(&s.cluster.Namespaces, "namespaces", 100, "Namespaces")
	flags.IntVar(&s.cluster.Services[synthetic.ClusterIP], "services", 10_000,
		"Services with a cluster IP, 3 endpoints each")
	flags.IntVar(&s.cluster.Services[synthetic.Headless], "headless", 500, "headless Services, 20 endpoints each")
	flags.IntVar(&s.cluster.Pods, "pods", 100_000, "Pods in the second half; 0 leaves that out")
	rig.RoundsFlag(flags, &s.rounds, 5)
	flags.IntVar(&s.changes, "changes", 500, "changes of EndpointSlices that are timed, each time")
	rig.WriteFlag(flags, &s.write)
	flags.BoolVar(&s.keep, "keep", false, "measure nothing; keep the cluster until interrupted")
	s.parts = map[part]bool{firstSecond: true, start: true, changing: true, stream: true, withoutAPI: true}
	flags.Func("parts", "only these, with commas between: "+strings.Join(partNames(), ","), s.setParts)
	return s.run
}

// part is a measurement that can be left out.
type part string

const (
	firstSecond part = "first-second"
	start       part = "start"
	changing    part = "changes"
	stream      part = "stream"
	withoutAPI  part = "without-api"
)

func partNames() (names []string) {
	for _, p := range []part{firstSecond, start, changing, stream, withoutAPI} {
		names = append(names, string(p))
	}
	return names
}

func (s *settings) setParts(text string) error {
	clear(s.parts)
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("there is no part %q", name)
		}
		s.parts[part(name)] = true
	}
	return nil
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	b := &bench{settings: s, log: log, dir: dir}
	if err := b.build(ctx); err != nil {
		return err
	}
	s.machine = rig.DescribeMachine()
	if s.keep || s.needsAPI() {
		if err := b.startAPI(ctx); err != nil {
			return err
		}
		defer b.api.Close()
	}
	if s.keep {
		log.Info("keeping the cluster", "kubeconfig", b.api.Kubeconfig())
		if err := s.cluster.CreatePods(ctx, b.client); err != nil {
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
	if len(s.parts) < len(partNames()) {
		s.write = "" // the existing table has all parts
	}
	return rig.Report(markdown(s, halves), s.write, "live")
}

// needsAPI reports whether a selected part needs a real API server.
func (s *settings) needsAPI() bool {
	return s.parts[firstSecond] || s.parts[start] || s.parts[changing] || s.parts[withoutAPI]
}

// startAPI starts an API server and creates the cluster without its Pods.
func (b *bench) startAPI(ctx context.Context) (err error) {
	if b.api, err = controlplane.Start(ctx, controlplane.Options{Log: b.log}); err != nil {
		return err
	}
	if b.client, err = synthetic.NewClient(b.api.RESTConfig()); err == nil {
		b.log.Info("filling the cluster", "services", b.cluster.Services[synthetic.ClusterIP],
			"headless", b.cluster.Services[synthetic.Headless])
		err = b.cluster.Create(ctx, b.client)
	}
	if err != nil {
		b.api.Close()
	}
	return err
}

// build builds the programs.
func (b *bench) build(ctx context.Context) error {
	workshop, err := rig.NewWorkshop(ctx, b.log, b.dir)
	if err != nil {
		return err
	}
	ourProgram, err := workshop.Program(ctx, rig.NamePortolan)
	if err != nil {
		return err
	}
	// Without the cache, because changes are measured.
	theirProgram, err := workshop.Program(ctx, rig.NameCoreDNS)
	if err != nil {
		return err
	}
	b.commit = ourProgram.Version
	portolan := func(flags ...string) func(string) *rig.Contender {
		return func(kubeconfig string) *rig.Contender {
			return rig.Portolan(ourProgram, filepath.Join(b.dir, "portolan.log"),
				append([]string{"--kubeconfig", kubeconfig}, flags...)...)
		}
	}
	coreDNS := func(kubeconfig string) *rig.Contender {
		return rig.CoreDNS(theirProgram, filepath.Join(b.dir, "coredns"), kubeconfig, "", rig.Certificate{})
	}
	b.contenders = []contender{
		theirs:   {"CoreDNS", coreDNS},
		ours:     {"Portolan", portolan()},
		oursWarm: {"Portolan", portolan("--snapshot", filepath.Join(b.dir, "snapshot"))},
	}
	return nil
}

// measure measures the cluster without Pods, and then with them.
func (b *bench) measure(ctx context.Context) (halves []*half, err error) {
	s := b.settings
	bare := s.cluster
	bare.Pods = 0
	h, err := b.half(ctx, &bare)
	if err != nil || s.cluster.Pods == 0 {
		return []*half{h}, err
	}
	if b.needsAPI() {
		b.log.Info("adding pods", "pods", s.cluster.Pods)
		if err := s.cluster.CreatePods(ctx, b.client); err != nil {
			return nil, err
		}
	}
	full, err := b.half(ctx, &s.cluster)
	return []*half{h, full}, err
}
