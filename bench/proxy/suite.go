// Package proxy measures the service proxy beside kube-proxy in nftables mode, each on a
// node of its own made of network namespaces, with the same cluster, in one run. It prints
// tables in Markdown. See docs/bench.md.
package proxy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// settings are the values of the flags.
type settings struct {
	rounds      int
	sizes       []size
	changes     int
	storm       time.Duration
	batches     int
	connections int
	keep        bool
	write       string
}

// size is the size of a cluster.
type size struct{ services, endpoints int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.services, s.endpoints) }

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "proxy", Short: "the service proxy beside kube-proxy", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := &settings{sizes: []size{{1000, 3}, {10_000, 3}}}
	rig.RoundsFlag(flags, &s.rounds, 1)
	flags.Func("sizes", "`SERVICESxENDPOINTS` of each, with commas between (default 1000x3,10000x3)", s.setSizes)
	flags.IntVar(&s.changes, "changes", 56, "changes of an endpoint that are timed")
	flags.DurationVar(&s.storm, "storm", 10*time.Second, "how long there are 100 changes a second")
	flags.IntVar(&s.batches, "batches", 25, "batches of packets of each kind; 0 leaves them out")
	flags.IntVar(&s.connections, "connections", 20_000, "connections while endpoints change; 0 leaves them out")
	flags.BoolVar(&s.keep, "keep", false,
		"measure nothing; run Portolan with the first size and 100 changes a second until interrupted")
	rig.WriteFlag(flags, &s.write)
	return s.run
}

func (s *settings) setSizes(text string) error {
	s.sizes = nil
	for part := range strings.SplitSeq(text, ",") {
		var n size
		if _, err := fmt.Sscanf(part, "%dx%d", &n.services, &n.endpoints); err != nil || n.services < 1 || n.endpoints < 1 {
			return fmt.Errorf("%q is not a size such as 1000x3", part)
		}
		if n.services*n.endpoints > maxEndpoints {
			return fmt.Errorf("%q has more than %d endpoints", part, maxEndpoints)
		}
		s.sizes = append(s.sizes, n)
	}
	return nil
}

// bench is the state that all measurements share.
type bench struct {
	*settings
	log        *slog.Logger
	dir        string
	machine    string
	portolan   *rig.Program
	contenders [contenders]contender
}

// result is what one contender did at one size in one round.
type result struct {
	start   start
	changes []time.Duration // from the write to the first connection that it serves
	// connection is how long a connection takes, which changes include.
	connection time.Duration
	storm      time.Duration // processor time per second
	after      memory        // after the storm
	stale      float64       // percent of datagrams to an endpoint that was replaced
	// first and established are the sender's processor time of a packet, by batch; direct
	// are those without a Service.
	first, established, directFirst, directEstablished []float64
	churn                                              churn
}

// half is the result for one size.
type half struct {
	size
	rounds [contenders][]*result
	others []float64 // the share of the processors that other programs used
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	if os.Getuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if s.rounds < 1 || s.changes < 1 {
		return errors.New("rounds and changes are at least 1")
	}
	if s.batches > maxBatches {
		return fmt.Errorf("there are at most %d batches", maxBatches)
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	workshop, err := rig.NewWorkshop(ctx, log, dir)
	if err != nil {
		return err
	}
	if b.portolan, err = workshop.Program(ctx, rig.NamePortolan); err != nil {
		return err
	}
	b.contenders[portolan] = b.ours()
	if s.keep {
		return b.untilInterrupted(ctx)
	}
	binaries, err := controlplane.Prepare(ctx, log)
	if err != nil {
		return err
	}
	b.contenders[kubeProxy] = b.kubeProxy(binaries.Version, binaries.KubeProxy())
	program, err := workshop.Program(ctx, rig.NameKubeProxy)
	if err != nil {
		return err
	}
	b.contenders[newest] = b.kubeProxy(program.Version, program.Path())
	var halves []*half
	for _, n := range s.sizes {
		h := &half{size: n}
		halves = append(halves, h)
		for round := range s.rounds {
			if err := b.round(ctx, h, round); err != nil {
				fmt.Print(b.markdown(halves[:len(halves)-1])) // the results so far
				return err
			}
		}
	}
	return rig.Report(b.markdown(halves), s.write, "proxy")
}

// untilInterrupted runs Portolan and changes its cluster. The log says how to read a profile.
func (b *bench) untilInterrupted(ctx context.Context) error {
	n, err := b.newNode(b.contenders[portolan], b.sizes[0])
	if err != nil {
		return err
	}
	defer n.close()
	began, err := n.measureStart(ctx)
	if err != nil {
		return err
	}
	b.log.Info("running", "pid", n.process.PID(), "start", began.took, "processor", began.processor,
		"profile", fmt.Sprintf("nsenter -n -t %d curl -s %s/debug/pprof/allocs", n.process.PID(), admin))
	for ctx.Err() == nil {
		if _, err := n.measureStorm(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// round measures the contenders, one after the other, and then packets through all in turn.
func (b *bench) round(ctx context.Context, h *half, round int) error {
	h.others = append(h.others, rig.OtherLoad(time.Second))
	var running [contenders]*node
	var results [contenders]*result
	for i := range contenders {
		place := (round + i) % contenders // the contenders alternate in being first
		b.log.Info("measuring", "size", h.size, "round", round+1, "of", b.contenders[place].name)
		n, err := b.newNode(b.contenders[place], h.size)
		if err != nil {
			return err
		}
		defer n.close()
		running[place], results[place] = n, new(result)
		if err := n.measure(ctx, results[place]); err != nil {
			return fmt.Errorf("%s: %w\n%s", n.name, err, lastWords(n.process.Log()))
		}
	}
	if err := b.measurePackets(running, results); err != nil {
		return err
	}
	for i, r := range results {
		h.rounds[i] = append(h.rounds[i], r)
	}
	return nil
}

// measure measures what does not need the other contenders.
func (n *node) measure(ctx context.Context, r *result) (err error) {
	defer rig.KeepGarbage()()
	if r.start, err = n.measureStart(ctx); err != nil {
		return err
	}
	if r.changes, err = n.measureChanges(ctx); err != nil {
		return err
	}
	if r.connection, err = n.measureConnection(); err != nil {
		return err
	}
	if r.storm, err = n.measureStorm(ctx); err != nil {
		return err
	}
	if r.after, err = n.settledMemory(); err != nil {
		return err
	}
	if r.stale, err = n.measureStale(ctx); err != nil {
		return err
	}
	r.churn, err = n.measureChurn(ctx)
	return err
}

func lastWords(log string) string {
	const most = 2000
	return log[max(0, len(log)-most):]
}
