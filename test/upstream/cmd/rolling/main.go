//go:build linux

// Command rolling replaces the Pods of a Deployment while clients connect to its Services, on a
// cluster with kube-proxy and on one with Portolan's service proxy, and writes the table of
// docs/proxy-e2e.md. It exits with status 1 if a connection to graceful Pods fails with Portolan.
// It must be root, with the programs that package cri's containers use.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/upstream/cluster"
	"portolan.dev/portolan/test/upstream/node"
	"portolan.dev/portolan/test/upstream/report"
	"portolan.dev/portolan/test/upstream/rolling"
)

// options are the command's flags.
type options struct {
	proxies         string
	nodes, replicas int
	graces          string
	page            string // file
}

// graceful is a time after which every proxy should know of an endpoint's end, on a loaded machine.
const graceful = 10 * time.Second

// names are those of the proxies in the table.
var names = map[cluster.Proxy]string{cluster.KubeProxy: "kube-proxy", cluster.Portolan: "Portolan"}

func main() {
	node.Main()
	var o options
	flag.StringVar(&o.proxies, "proxies", "kube-proxy,portolan", "service proxies to run it with")
	flag.IntVar(&o.nodes, "nodes", 4, "number of nodes")
	flag.IntVar(&o.replicas, "replicas", 50, "number of Pods of the Deployment")
	flag.StringVar(&o.graces, "graces", "10s,1s,0s", "how long Pods accept connections after SIGTERM, in several runs")
	flag.StringVar(&o.page, "page", "", "page whose table is written; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rolling:", err)
		status = 1
	}
	os.Exit(status)
}

func (o *options) run(ctx context.Context) (status int, err error) {
	if !namespace.Isolated() {
		return cluster.Isolate(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	programs, err := cluster.Prepared()
	if err != nil {
		return 1, err
	}
	var rows []rolling.Row
	for proxy := range strings.SplitSeq(o.proxies, ",") {
		if names[cluster.Proxy(proxy)] == "" {
			return 1, fmt.Errorf("no proxy %q", proxy)
		}
		config := cluster.Config{Programs: programs, Proxy: cluster.Proxy(proxy), Nodes: o.nodes}
		more, err := o.runProxy(ctx, config)
		if err != nil {
			return 1, fmt.Errorf("%s: %w", proxy, err)
		}
		rows = append(rows, more...)
	}
	slices.SortStableFunc(rows, func(a, b rolling.Row) int { return cmp.Compare(b.Grace, a.Grace) })
	if slices.ContainsFunc(rows, func(r rolling.Row) bool {
		return r.Proxy == names[cluster.Portolan] && r.Grace >= graceful && r.Failed() > 0
	}) {
		status = 1
	}
	return status, o.write(rolling.Table(rows))
}

// runProxy replaces Pods with one of the proxies, once for each time of grace.
func (o *options) runProxy(ctx context.Context, config cluster.Config) (rows []rolling.Row, err error) {
	c, err := cluster.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for text := range strings.SplitSeq(o.graces, ",") {
		grace, err := time.ParseDuration(text)
		if err != nil {
			return nil, err
		}
		result, err := rolling.Run(ctx, rolling.Config{Client: c.Client(), Replicas: o.replicas, Grace: grace})
		if err != nil {
			return nil, err
		}
		fmt.Printf("%s, Pods with a grace of %s: %d connections failed\n", config.Proxy, grace, result.Failed())
		if grace >= graceful {
			for _, failure := range result.Failures() {
				fmt.Println("\t" + failure)
			}
		}
		rows = append(rows, rolling.Row{Proxy: names[config.Proxy], Grace: grace, Result: result})
	}
	return rows, nil
}

func (o *options) write(table string) error {
	if o.page == "" {
		_, err := fmt.Print(table)
		return err
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		return err
	}
	text, err := report.Insert(string(page), "make rolling-proxy", table)
	if err != nil {
		return fmt.Errorf("%s: %w", o.page, err)
	}
	return os.WriteFile(o.page, []byte(text), 0o644)
}
