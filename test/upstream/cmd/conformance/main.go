//go:build linux

// Command conformance runs Kubernetes' end-to-end tests of Services on a cluster with kube-proxy,
// and on one with Portolan's service proxy, records the results in testdata, and writes the table
// of docs/proxy-e2e.md. It exits with status 1 if a result differs. It must be root, with the
// programs that package cri's containers use (Debian: bind9-dnsutils, conntrack, curl, iproute2,
// netcat-openbsd, nftables, util-linux).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/upstream/cluster"
	"portolan.dev/portolan/test/upstream/node"
	"portolan.dev/portolan/test/upstream/report"
	"portolan.dev/portolan/test/upstream/suite"
)

// areas are the tests that are run by default.
const areas = `\[sig-network\] (Services|Networking|EndpointSlice|EndpointSliceMirroring|Conntrack|` +
	`Traffic Distribution|Topology Hints|\[Feature:IPv6DualStack\]) `

// options are the command's flags.
type options struct {
	proxies        string
	focus          string
	nodes, workers int
	results, page  string // files: a directory, and the page
	logs           string
	missing        bool
	tableOnly      bool
	hold           bool
}

func main() {
	node.Main()
	var o options
	flag.StringVar(&o.proxies, "proxies", "kube-proxy,portolan", "service proxies to run the tests with")
	flag.StringVar(&o.focus, "focus", areas, "regular expression of the tests' names; results of others stay")
	flag.IntVar(&o.nodes, "nodes", 6, "number of nodes, in three zones; some tests need two in each")
	flag.IntVar(&o.workers, "workers", 4, "number of tests at once; those that need the cluster alone come last")
	flag.StringVar(&o.results, "results", "testdata", "directory of the recorded results")
	flag.StringVar(&o.page, "page", "../../docs/proxy-e2e.md", "page with the table")
	flag.StringVar(&o.logs, "logs", filepath.Join(os.TempDir(), "portolan-conformance"),
		"directory for what failed and skipped tests print")
	flag.BoolVar(&o.missing, "missing", false, "run tests without a recorded result alone")
	flag.BoolVar(&o.tableOnly, "table", false, "write the table from the recorded results and end")
	flag.BoolVar(&o.hold, "hold", false, "run the cluster with the first of the proxies until interrupted, and no tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		status = 1
	}
	os.Exit(status)
}

func (o *options) run(ctx context.Context) (status int, err error) {
	if o.tableOnly {
		return o.writeTable()
	}
	if !namespace.Isolated() {
		return cluster.Isolate(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	programs, err := cluster.Prepared()
	if err != nil {
		return 1, err
	}
	for proxy := range strings.SplitSeq(o.proxies, ",") {
		if err := o.runProxy(ctx, programs, cluster.Proxy(proxy)); err != nil {
			return 1, fmt.Errorf("%s: %w", proxy, err)
		}
	}
	if o.hold {
		return 0, nil
	}
	return o.writeTable()
}

// runProxy runs the tests with one of the proxies and records the results, each at once.
func (o *options) runProxy(ctx context.Context, programs *cluster.Programs, proxy cluster.Proxy) (err error) {
	c, err := cluster.Start(ctx, cluster.Config{Programs: programs, Proxy: proxy, Nodes: o.nodes})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if o.hold {
		fmt.Printf("export KUBECONFIG=%s; logs of the nodes are in %s\n", c.Kubeconfig(), c.Dir())
		<-ctx.Done()
		return nil
	}
	logs := filepath.Join(o.logs, string(proxy))
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	r := &runner{
		suite: suite.Suite{Program: programs.E2E, Kubeconfig: c.Kubeconfig(), Kubectl: programs.Kubectl, Dir: logs},
		proxy: proxy, file: filepath.Join(o.results, string(proxy)+".json"),
	}
	if r.outcomes, err = report.Read(r.file); err != nil {
		return err
	}
	specs, err := r.suite.List(ctx, o.focus)
	if err != nil {
		return err
	}
	var together, alone []suite.Spec
	for _, spec := range specs {
		_, recorded := r.outcomes[spec]
		switch reason, unable := spec.Unable(); {
		case unable:
			r.outcomes[spec] = report.Outcome{State: suite.Skipped, Skipped: reason}
		case o.missing && recorded:
		case spec.Alone():
			alone = append(alone, spec)
		default:
			together = append(together, spec)
		}
	}
	return errors.Join(r.run(ctx, together, o.workers), r.run(ctx, alone, 1))
}

// runner runs specs and records what comes of them.
type runner struct {
	suite suite.Suite
	proxy cluster.Proxy
	file  string

	mu       sync.Mutex
	outcomes report.Outcomes
	errs     []error
}

// attempts is how often a spec may fail: the machine may have other work, and tests have
// deadlines.
const attempts = 3

// run runs the specs, several at once.
func (r *runner) run(ctx context.Context, specs []suite.Spec, workers int) error {
	queue := make(chan suite.Spec, len(specs))
	for _, spec := range specs {
		queue <- spec
	}
	close(queue)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for spec := range queue {
				r.runSpec(ctx, spec)
			}
		})
	}
	all.Wait()
	return errors.Join(append(r.errs, ctx.Err())...)
}

// runSpec runs a spec until it does not fail, and records the last result.
func (r *runner) runSpec(ctx context.Context, spec suite.Spec) {
	var result suite.Result
	var err error
	attempt := 0
	for ctx.Err() == nil && attempt < attempts && (attempt == 0 || result.State == suite.Failed) {
		attempt++
		if result, err = r.suite.Run(ctx, spec); err != nil {
			break
		}
		fmt.Printf("%s: %s: %s after %s\n", r.proxy, spec, result.State, result.Took.Round(time.Second))
		if result.State == suite.Failed {
			fmt.Printf("\t%s\n", strings.ReplaceAll(result.Failure, "\n", "\n\t"))
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.outcomes[spec] = report.Outcome{State: result.State, Attempts: attempt, Skipped: result.Skipped}
		err = r.outcomes.Write(r.file)
	}
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// writeTable writes the page. The status is 1 if results of the proxies differ.
func (o *options) writeTable() (status int, err error) {
	var outcomes []report.Outcomes
	for _, proxy := range []cluster.Proxy{cluster.KubeProxy, cluster.Portolan} {
		read, err := report.Read(filepath.Join(o.results, string(proxy)+".json"))
		if err != nil {
			return 1, err
		}
		outcomes = append(outcomes, read)
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		return 1, err
	}
	text, err := report.Insert(string(page), "make conformance-proxy", report.Table(outcomes[0], outcomes[1]))
	if err != nil {
		return 1, fmt.Errorf("%s: %w", o.page, err)
	}
	for _, spec := range report.Differences(outcomes[0], outcomes[1]) {
		status = 1
		fmt.Printf("%s: %s with kube-proxy, %s with portolan\n", spec, outcomes[0][spec], outcomes[1][spec])
	}
	return status, os.WriteFile(o.page, []byte(text), 0o644)
}
