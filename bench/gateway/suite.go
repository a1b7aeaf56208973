// Package gateway measures the gateway beside other proxies with one backend, over HTTP, TLS, gRPC and TCP: what a
// request costs, how long it takes at a fixed rate, and what an idle connection holds; and the gateway with many routes
// and many certificates. It prints tables in Markdown. See docs/bench.md.
package gateway

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// settings are the values of the flags.
type settings struct {
	rounds      int
	duration    time.Duration
	connections int
	rate        int
	idle        int
	secured     int
	clients     int
	streams     int
	hosts       int
	routes      int
	changes     int
	contenders  string
	write       string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "gateway", Short: "the gateway beside other proxies", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 5)
	flags.DurationVar(&s.duration, "duration", 3*time.Second, "how long each load is measured")
	flags.IntVar(&s.connections, "connections", 32, "connections that send requests")
	flags.IntVar(&s.rate, "rate", 4000, "requests per second for the latency")
	flags.IntVar(&s.idle, "idle", 4000, "idle connections; 0 leaves them out")
	flags.IntVar(&s.secured, "tls", 8, "connections that do handshakes at a time; 0 leaves TLS out")
	flags.IntVar(&s.routes, "routes", 5000, "HTTPRoutes; 0 leaves them out")
	flags.IntVar(&s.clients, "grpc", 32, "clients of gRPC, of which eight share a connection; 0 leaves it out")
	flags.IntVar(&s.streams, "tcp", largeCount, "connections through a TCPRoute; 0 leaves them out")
	flags.IntVar(&s.hosts, "certificates", 5000, "certificates, each in a Secret; 0 leaves them out")
	flags.IntVar(&s.changes, "changes", 300, "changes of a route that are timed, in each round")
	flags.StringVar(
		&s.contenders,
		"contenders",
		"",
		"only these, with commas between: "+strings.Join(contenderNames(), ","),
	)
	rig.WriteFlag(flags, &s.write)
	return s.run
}

// The measured proxy has one processor; the backend and the caller share the other.
const (
	proxyCPU = 0
	otherCPU = 1
)

// bench is the state that all measurements share.
type bench struct {
	*settings
	log     *slog.Logger
	dir     string
	machine string
	caller  string // program

	backend, rpcBackend string // addresses

	certificate certificate
	groups      []*group
	portolan    *rig.Program
	others      []float64  // the share of the processors that other programs used before each round
	many        []*changed // with all routes
	few         []*changed
	manyHosts   []*secured // with all certificates
	fewHosts    []*secured
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) (err error) {
	if s.rounds < 1 || s.connections < 1 || s.rate < 1 || s.changes < 1 {
		return errors.New("rounds, connections, rate and changes are at least 1")
	}
	names, err := rig.Choose(contenderNames(), s.contenders)
	if err != nil {
		return err
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	workshop, err := rig.NewWorkshop(ctx, log, dir)
	if err != nil {
		return err
	}
	stop, err := b.prepare(ctx, workshop)
	if err != nil {
		return err
	}
	defer stop()
	for _, g := range b.groups {
		b.fill(ctx, workshop, g, names)
	}
	if err := b.measure(ctx); err != nil {
		fmt.Print(b.markdown()) // the results so far
		return err
	}
	return rig.Report(b.markdown(), s.write, "gateway")
}

// prepare builds the programs, starts the backends until stop is called, and creates the groups that are not left out.
func (b *bench) prepare(ctx context.Context, w *rig.Workshop) (stop func(), err error) {
	if b.caller, err = w.Tool(ctx, "gateway/caller"); err != nil {
		return nil, err
	}
	if b.portolan, err = w.Program(ctx, rig.NamePortolan); err != nil {
		return nil, err
	}
	if b.certificate, err = newCertificate(b.dir); err != nil {
		return nil, err
	}
	var stopRPC, stopHTTP func()
	if b.rpcBackend, stopRPC, err = startBackend(ctx, w, "rpcbackend"); err != nil {
		return nil, err
	}
	if b.backend, stopHTTP, err = startBackend(ctx, w, "backend"); err != nil {
		stopRPC()
		return nil, err
	}
	b.groups = []*group{b.plain()}
	for _, optional := range []struct {
		size  int
		group func() *group
	}{{b.secured, b.secure}, {b.clients, b.rpc}, {b.streams, b.tcp}} {
		if optional.size > 0 {
			b.groups = append(b.groups, optional.group())
		}
	}
	return func() { stopRPC(); stopHTTP() }, nil
}

// measure measures all contenders in turn. Each round starts with a different contender.
func (b *bench) measure(ctx context.Context) error {
	for round := range b.rounds {
		b.others = append(b.others, rig.OtherLoad(time.Second))
		for _, g := range b.groups {
			if err := b.measureGroup(ctx, g, round); err != nil {
				return err
			}
		}
		if err := b.measureMany(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// measureMany measures the gateway with few and with many routes and certificates.
func (b *bench) measureMany(ctx context.Context, round int) error {
	if b.routes > 0 {
		b.log.Info("measuring", "round", round+1, "routes", b.routes)
		err := errors.Join(add(ctx, &b.few, b.change, fewRoutes), add(ctx, &b.many, b.change, b.routes))
		if err != nil {
			return err
		}
	}
	if b.hosts > 0 {
		b.log.Info("measuring", "round", round+1, "certificates", b.hosts)
		return errors.Join(
			add(ctx, &b.fewHosts, b.secureHosts, fewCertificates), add(ctx, &b.manyHosts, b.secureHosts, b.hosts),
		)
	}
	return nil
}

// add measures the gateway with a number of objects.
func add[T any](ctx context.Context, all *[]T, measure func(context.Context, int) (T, error), objects int) error {
	one, err := measure(ctx, objects)
	if err != nil {
		return fmt.Errorf("%d objects: %w", objects, err)
	}
	*all = append(*all, one)
	return nil
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }
