// Package query measures the cost of a query for Portolan and its peers, with the same
// records in one run, and prints tables in Markdown. See docs/bench.md.
package query

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// settings are the values of the flags.
type settings struct {
	cluster    synthetic.Cluster
	rounds     int
	duration   time.Duration
	rate       int
	window     int
	workloads  string
	contenders string
	tree, base string
	write      string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{
		Name:    "query",
		Short:   "what a query costs Portolan and its peers, on the same records",
		Declare: declare,
	}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	flags.IntVar(&s.cluster.Namespaces, "namespaces", 100, "Namespaces")
	flags.IntVar(&s.cluster.Services[synthetic.ClusterIP], "services", 10_000,
		"Services with a cluster IP, 3 endpoints each")
	flags.IntVar(&s.cluster.Services[synthetic.Headless], "headless", 500, "headless Services, 20 endpoints each")
	flags.IntVar(&s.cluster.Services[synthetic.Single], "single", 100, "headless Services, 1 endpoint each")
	flags.IntVar(&s.cluster.Services[synthetic.Wide], "wide", 4, "headless Services, 500 endpoints each")
	rig.RoundsFlag(flags, &s.rounds, 5)
	flags.DurationVar(&s.duration, "duration", time.Second,
		"how long each measurement is; there are two for each workload, contender and round")
	flags.IntVar(&s.rate, "rate", 20_000, "queries in a second at which latency is measured")
	flags.IntVar(&s.window, "window", 128, "queries under way at once when the processor time is measured")
	flags.StringVar(&s.workloads, "workloads", "", "only these, with commas between: "+strings.Join(workloadNames(), ","))
	flags.StringVar(&s.contenders, "contenders", "",
		"only these, with commas between: "+strings.Join(contenderNames(), ",")+
			". Without CoreDNS, Portolan reads manifests, and no API server is started")
	flags.StringVar(&s.tree, "tree", "", "measure the Portolan of the tree in this `DIR` (default: the one this is in)")
	flags.StringVar(&s.base, "base", "", "measure that of this `DIR`, too, as the contender base")
	rig.WriteFlag(flags, &s.write)
	return s.run
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	if runtime.NumCPU() < 2 {
		return errors.New("two processors are needed, one for the server and one for who asks")
	}
	if s.rounds < 1 || s.rate < 1 || s.window < 1 {
		return errors.New("rounds, rate and window are at least 1")
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	defer b.close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.agree(); err != nil {
		return err
	}
	results, err := b.measure(ctx)
	if err != nil {
		return err
	}
	return rig.Report(b.markdown(results), s.write, "query")
}
