//go:build linux

// Command conformance runs Kubernetes' end-to-end tests of an area: those of Services on a cluster
// with kube-proxy, and on one with Portolan's service proxy, or those of NetworkPolicies on one
// with Portolan's agents, or conformance tests of the network on one whose network Portolan's
// manifests make. It records the results in testdata, and writes the table of the area's page. It exits with
// status 1 if a test failed or a result differs. It must be root, with the programs that package
// cri's containers use (Debian: bind9-dnsutils, conntrack, curl, iproute2, netcat-openbsd, nftables,
// util-linux).
package main

import (
	"cmp"
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

// area is a part of the network's tests.
type area struct {
	specs   string // regular expression of their names
	proxies string // those of the clusters, one after the other
	nodes   int
	page    string // file, seen from this module's directory
	command string // that writes it
}

// areas are the areas by name.
var areas = map[string]area{
	"services": {
		specs: `\[sig-network\] (Services|Networking|EndpointSlice|EndpointSliceMirroring|Conntrack|` +
			`Traffic Distribution|Topology Hints|\[Feature:IPv6DualStack\]) `,
		proxies: string(cluster.KubeProxy + "," + cluster.Portolan),
		nodes:   6, // in three zones; some tests need two in each
		page:    "../../docs/proxy-e2e.md", command: "make conformance-proxy",
	},
	"policies": {
		specs:   `\[sig-network\] Netpol `,
		proxies: string(cluster.PortolanPolicies),
		nodes:   2, // Pods of each test are on both
		page:    "../../docs/policy-e2e.md", command: "make conformance-policy",
	},
	"network": {
		specs: `\[sig-network\] .*\[Conformance\]|\[sig-network\] LoadBalancers |` +
			`\[sig-network\] Services .* for internal traffic on Type LoadBalancer|` +
			`\[sig-network\] Netpol .* server and client should (support a 'default-deny-all' policy|` +
			`allow ingress access on one named port|deny egress from all pods in a namespace|` +
			`stop enforcing policies after they are deleted|` +
			`enforce policy based on Multiple PodSelectors and NamespaceSelectors)`,
		proxies: string(cluster.PortolanNetwork),
		nodes:   2, // Pods are on both
		page:    "../../docs/network-e2e.md",
		command: "make conformance-network",
	},
}

// names are those of the table.
var names = map[cluster.Proxy]string{
	cluster.KubeProxy: "kube-proxy", cluster.Portolan: "Portolan", cluster.PortolanPolicies: "Portolan",
	cluster.PortolanNetwork: "Portolan",
}

// options are the command's flags.
type options struct {
	area
	columns   string // proxies of the table
	workers   int
	results   string // directory
	logs      string
	missing   bool
	tableOnly bool
	hold      bool
}

func main() {
	node.Main()
	name := flag.String("area", "services", "tests to run: services, policies or network")
	var o options
	flag.StringVar(&o.proxies, "proxies", "", "service proxies to run the tests with (default: the area's)")
	flag.StringVar(&o.specs, "focus", "",
		"regular expression of the tests' names, instead of the area's; results of others stay")
	flag.IntVar(&o.nodes, "nodes", 0, "number of nodes, in three zones (default: the area's)")
	flag.IntVar(&o.workers, "workers", 4, "number of tests at once; those that need the cluster alone come last")
	flag.StringVar(&o.results, "results", "testdata", "directory of the recorded results")
	flag.StringVar(&o.page, "page", "", "page with the table (default: the area's)")
	flag.StringVar(&o.logs, "logs", filepath.Join(os.TempDir(), "portolan-conformance"),
		"directory for what failed and skipped tests print")
	flag.BoolVar(&o.missing, "missing", false, "run tests without a recorded result alone")
	flag.BoolVar(&o.tableOnly, "table", false, "write the table from the recorded results and end")
	flag.BoolVar(&o.hold, "hold", false, "run the cluster with the first of the proxies until interrupted, and no tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := o.setArea(*name)
	status := 1
	if err == nil {
		status, err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		status = 1
	}
	os.Exit(status)
}

// setArea sets the options that no flag set.
func (o *options) setArea(name string) error {
	a, ok := areas[name]
	if !ok {
		return fmt.Errorf("no area %q", name)
	}
	o.columns, o.command = a.proxies, a.command
	o.specs, o.proxies = cmp.Or(o.specs, a.specs), cmp.Or(o.proxies, a.proxies)
	o.nodes, o.page = cmp.Or(o.nodes, a.nodes), cmp.Or(o.page, a.page)
	return nil
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
	specs, err := r.suite.List(ctx, o.specs)
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

// writeTable writes the page. The status is 1 if a spec failed or results of the proxies differ.
func (o *options) writeTable() (status int, err error) {
	var columns []report.Column
	for proxy := range strings.SplitSeq(o.columns, ",") {
		outcomes, err := report.Read(filepath.Join(o.results, proxy+".json"))
		if err != nil {
			return 1, err
		}
		columns = append(columns, report.Column{Name: names[cluster.Proxy(proxy)], Outcomes: outcomes})
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		return 1, err
	}
	text, err := report.Insert(string(page), o.command, report.Table(columns...))
	if err != nil {
		return 1, fmt.Errorf("%s: %w", o.page, err)
	}
	for _, spec := range report.Faults(columns...) {
		status = 1
		for _, c := range columns {
			fmt.Printf("%s: %s with %s\n", spec, c.Outcomes[spec], c.Name)
		}
	}
	return status, os.WriteFile(o.page, []byte(text), 0o644)
}
