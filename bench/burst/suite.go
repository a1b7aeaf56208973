// Package burst measures how changes of the cluster affect queries. Portolan follows an
// API server that sends many changes, and answers queries at a fixed rate meanwhile.
// The package prints a table in Markdown. See docs/bench.md.
package burst

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// settings are the values of the flags.
type settings struct {
	rounds   int
	duration time.Duration
	rate     int
	write    string
}

// cases lists the clusters, with the number of changes per second.
var cases = []struct {
	cluster synthetic.Cluster
	changes int
}{
	{synthetic.Cluster{Namespaces: 100, Services: [synthetic.Kinds]int{10_000, 500}}, 10_000},
	{synthetic.Cluster{Namespaces: 100, Services: [synthetic.Kinds]int{100_000, 500}}, 1_000},
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "burst", Short: "what changes of the cluster do to queries", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 3)
	flags.DurationVar(&s.duration, "duration", 10*time.Second, "how long a burst is, and the quiet before it")
	flags.IntVar(&s.rate, "rate", 20_000, "queries in a second")
	rig.WriteFlag(flags, &s.write)
	return s.run
}

// generatorCPU is the processor of the load generator. Portolan and the API server may
// use all processors.
const generatorCPU = 1

// bench is the state that all measurements share.
type bench struct {
	*settings
	log *slog.Logger
	dir string
	// Programs.
	portolan, echo *rig.Program
	generator      string
	machine        string
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	if runtime.NumCPU() < 2 {
		return errors.New("two processors are needed, one for who asks")
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	workshop, err := rig.NewWorkshop(ctx, log, dir)
	if err != nil {
		return err
	}
	if b.portolan, err = workshop.Program(ctx, rig.NamePortolan); err != nil {
		return err
	}
	if b.generator, err = workshop.Tool(ctx, "load/generator"); err != nil {
		return err
	}
	if b.echo, err = workshop.Program(ctx, rig.NameEcho); err != nil {
		return err
	}
	results := make([][]*round, len(cases))
	for i := range cases {
		if results[i], err = b.measure(ctx, &cases[i].cluster, cases[i].changes); err != nil {
			return err
		}
	}
	return rig.Report(b.markdown(results), s.write, "burst")
}

// round is the result of one round.
type round struct {
	echo, quiet, burst *load.Result
	changes            float64 // per second of the burst
}

// measure measures one cluster.
func (b *bench) measure(ctx context.Context, c *synthetic.Cluster, changes int) (rounds []*round, err error) {
	b.log.Info("making the cluster", "services", c.Services[synthetic.ClusterIP])
	api, err := fakeapi.New(c)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	kubeconfig := filepath.Join(b.dir, "kubeconfig")
	if err := api.Kubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	server, err := b.start(ctx, rig.Portolan(b.portolan, filepath.Join(b.dir, "portolan.log"), "--kubeconfig", kubeconfig))
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	echo, err := b.start(ctx, rig.Echo(b.echo, filepath.Join(b.dir, "echo.log")))
	if err != nil {
		return nil, err
	}
	defer echo.Stop()
	frames, err := encode(api, c)
	if err != nil {
		return nil, err
	}
	config := load.Config{
		Transport: load.UDP, Sockets: 100, Rate: b.rate,
		Warm: time.Second, Duration: b.duration, Queries: filepath.Join(b.dir, "queries"),
	}
	if err := writeQueries(config.Queries, c); err != nil {
		return nil, err
	}
	for n := range b.rounds {
		b.log.Info("measuring", "round", n+1, "services", c.Services[synthetic.ClusterIP])
		r := new(round)
		rounds = append(rounds, r)
		if r.echo, err = b.load(ctx, config, echo); err != nil {
			return nil, err
		}
		if r.quiet, err = b.load(ctx, config, server); err != nil {
			return nil, err
		}
		stop := storm(api, frames, changes)
		r.burst, err = b.load(ctx, config, server)
		r.changes = stop()
		if err != nil {
			return nil, err
		}
	}
	return rounds, nil
}

// start starts a contender on the first processor.
func (b *bench) start(ctx context.Context, c *rig.Contender) (*rig.Server, error) {
	c.CPUs = []int{0}
	server, err := c.Start()
	if err != nil {
		return nil, err
	}
	if err := server.WaitReady(ctx); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

// load runs the load generator against a server.
func (b *bench) load(ctx context.Context, config load.Config, server *rig.Server) (r *load.Result, err error) {
	config.Server = server.DNS
	if config.Processes, err = server.Processes(); err != nil {
		return nil, err
	}
	return config.RunApart(ctx, b.generator, generatorCPU)
}

// writeQueries writes queries for the address of each Service with a cluster IP, in an
// order that is unrelated to their order in memory.
func writeQueries(file string, c *synthetic.Cluster) error {
	const stride = 7919 // coprime to their number
	n := c.Services[synthetic.ClusterIP]
	wires := make([][]byte, n)
	for i := range n {
		var err error
		wires[i], err = dnswire.NewQuery(
			dnswire.QuerySpec{Name: c.DNSName(synthetic.ClusterIP, i*stride%n), Type: dnswire.TypeA})
		if err != nil {
			return err
		}
	}
	return load.WriteQueries(file, wires)
}
