// Package gateway measures the gateway beside other HTTP proxies with one backend: what a request costs, how long it
// takes at a fixed rate, and what an idle connection holds; and the gateway's memory and changes with many routes. It
// prints tables in Markdown. See docs/bench.md.
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
	hosts       int
	routes      int
	changes     int
	contenders  string
	write       string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "gateway", Short: "the gateway beside other HTTP proxies", Declare: declare}
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
	if b.caller, err = workshop.Tool(ctx, "gateway/caller"); err != nil {
		return err
	}
	if b.portolan, err = workshop.Program(ctx, rig.NamePortolan); err != nil {
		return err
	}
	for command, address := range map[string]*string{"backend": &b.backend, "rpcbackend": &b.rpcBackend} {
		var stop func()
		if *address, stop, err = startBackend(ctx, workshop, command); err != nil {
			return err
		}
		defer stop()
	}
	if err := b.prepare(); err != nil {
		return err
	}
	for _, g := range b.groups {
		b.fill(ctx, workshop, g, names)
	}
	if err := b.measure(ctx); err != nil {
		fmt.Print(b.markdown()) // the results so far
		return err
	}
	return rig.Report(b.markdown(), s.write, "gateway")
}

// prepare creates the certificate and the groups that are not left out.
func (b *bench) prepare() (err error) {
	if b.certificate, err = newCertificate(b.dir); err != nil {
		return err
	}
	b.groups = []*group{b.plain()}
	if b.secured > 0 {
		b.groups = append(b.groups, b.secure())
	}
	if b.clients > 0 {
		b.groups = append(b.groups, b.rpc())
	}
	return nil
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
