// Package explain measures what explanations of all layers, and assertions about them, cost in a large cluster: by the
// command, which reads manifests, and on a running process. It prints a table in Markdown. See docs/bench.md.
package explain

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// settings are the values of the flags.
type settings struct {
	rounds     int
	services   int
	assertions int
	write      string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "explain", Short: "what explanations and assertions cost", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 9)
	flags.IntVar(&s.services, "services", 10_000, "Services, each with a Pod; a tenth as many policies and routes")
	flags.IntVar(&s.assertions, "assertions", 2000, "assertions of portolan test")
	rig.WriteFlag(flags, &s.write)
	return s.run
}

// kind is what is explained.
type kind int

// The kinds.
const (
	toURL     kind = iota // a URL of a route
	toService             // a connection to a Service
	kinds
)

func (k kind) String() string { return [...]string{"a URL", "a connection"}[k] }

// target returns what the nth client asks for.
func (k kind) target(p *synthetic.Paths, n int) string {
	if k == toURL {
		return "http://" + p.RouteHost(n%p.Routes) + "/api/items"
	}
	return p.Host(n) + ":80"
}

// cost is that of a run of a command, or of an explanation in a process.
type cost struct {
	wall, cpu time.Duration
	memory    float64 // MiB at most
}

// origin is where a command reads the cluster.
type origin struct {
	name      string
	paths     *synthetic.Paths
	directory string
	arguments []string
}

// result has the costs of one way of reading the cluster.
type result struct {
	*origin
	commands [kinds][]cost
	test     []cost
	// warm are explanations on a running process, and changed those after a change of the model.
	warm, changed [kinds][]cost
	// model is what the process holds before it explains anything, and held what it holds more afterwards, in MiB.
	model, held float64
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	workshop, err := rig.NewWorkshop(ctx, log, dir)
	if err != nil {
		return err
	}
	portolan, err := workshop.Program(ctx, rig.NamePortolan)
	if err != nil {
		return err
	}
	var results []*result
	for _, from := range s.sources(dir) {
		log.Info("measuring", "cluster", from.name)
		r, err := s.measure(ctx, portolan, from)
		if err != nil {
			return fmt.Errorf("%s: %w", from.name, err)
		}
		results = append(results, r)
	}
	return rig.Report(s.markdown(portolan.Version, results), s.write, "explain")
}

func (s *settings) sources(dir string) []*origin {
	paths := func(sliceless bool) *synthetic.Paths {
		return &synthetic.Paths{
			Namespaces: 100, Services: s.services, Policies: s.services / 10, Routes: s.services / 10, Sliceless: sliceless,
		}
	}
	return []*origin{
		{"with EndpointSlices", paths(false), filepath.Join(dir, "whole"), nil},
		{"simulated from selectors", paths(true), filepath.Join(dir, "sliceless"), []string{"--simulate"}},
	}
}

// measure measures one way of reading the cluster.
func (s *settings) measure(ctx context.Context, portolan *rig.Program, from *origin) (*result, error) {
	r := &result{origin: from}
	if err := os.Mkdir(from.directory, 0o755); err != nil {
		return nil, err
	}
	if err := from.paths.WriteManifests(filepath.Join(from.directory, "cluster.yaml")); err != nil {
		return nil, err
	}
	file := from.directory + "-test.yaml"
	if err := os.WriteFile(file, s.suite(from.paths), 0o600); err != nil {
		return nil, err
	}
	for n := range s.rounds {
		for k := range kinds {
			c, err := from.command(ctx, portolan, "explain", k.target(from.paths, n), "--from",
				from.paths.Namespace(n)+"/"+from.paths.PodName(n))
			if err != nil {
				return nil, err
			}
			r.commands[k] = append(r.commands[k], c)
		}
		c, err := from.command(ctx, portolan, "test", file)
		if err != nil {
			return nil, err
		}
		r.test = append(r.test, c)
	}
	return r, s.running(ctx, r)
}

// command runs a command that reads the cluster. An explanation may be that something does not work.
func (f *origin) command(ctx context.Context, portolan *rig.Program, args ...string) (c cost, err error) {
	command := portolan.Command(append(append(args, "--manifests", f.directory), f.arguments...)...)
	var failed strings.Builder
	command.Stderr = &failed
	begin := time.Now()
	err = command.Run()
	c.wall = time.Since(begin)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && args[0] == "explain" && exit.ExitCode() >= mostUsage {
		err = nil
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, failed.String())
	}
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.memory = float64(usage.Maxrss) / 1024
	}
	c.cpu = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	return c, ctx.Err()
}

// mostUsage is above the exit statuses of errors; those of layers are 10 and more.
const mostUsage = 10

// suite returns a suite of assertions about connections, each between other Pods.
func (s *settings) suite(p *synthetic.Paths) []byte {
	var b strings.Builder
	b.WriteString("tests:\n")
	for i := range s.assertions {
		// The client is in the Service's namespace: policies allow it.
		fmt.Fprintf(&b, "- {from: %s/%s, to: '%s:80', expect: connects}\n", p.Namespace(i), p.PodName(i),
			p.Host((i+p.Namespaces)%p.Services))
	}
	return []byte(b.String())
}

// running measures explanations on a running process.
func (s *settings) running(ctx context.Context, r *result) error {
	settings := settingsOf(r.directory)
	settings.Simulate.Enabled = len(r.arguments) > 0
	p, err := newProcess(ctx, r.paths, settings)
	if err != nil {
		return err
	}
	before := heap()
	r.model = mebi(before)
	const each = 20
	for n := range each * s.rounds {
		for k := range kinds {
			c, err := p.explain(ctx, k, n%r.paths.Services)
			if err != nil {
				return err
			}
			r.warm[k] = append(r.warm[k], c)
		}
	}
	r.held = mebi(heap()) - r.model
	for n := range each * s.rounds {
		for k := range kinds {
			p.change((n*int(kinds) + int(k)) % r.paths.Services)
			c, err := p.explain(ctx, k, n%r.paths.Services)
			if err != nil {
				return err
			}
			r.changed[k] = append(r.changed[k], c)
		}
	}
	return nil
}

func mebi(octets uint64) float64 { return float64(octets) / (1 << 20) }
