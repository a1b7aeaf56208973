package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/support/testcert"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// The measured server has one processor, and the load generator the other. The order
// matters because Knot's first worker always uses the first processor.
const (
	serverCPU    = 0
	generatorCPU = 1
)

// bench is the state that all measurements share.
type bench struct {
	*settings
	log     *slog.Logger
	dir     string
	machine string
	chosen  []workload

	workshop  *rig.Workshop
	api       *controlplane.ControlPlane // nil if Portolan reads manifests
	source    []string                   // flags that name Portolan's source
	zones     []zoneFile                 // the same data, for servers that read zone files
	generator string                     // program
	running   []*contestant

	certificate rig.Certificate // of all contenders with TLS

	differences     []*difference // permitted differences, with their counts
	answersCompared int
}

// contestant is a running contender.
type contestant struct {
	name, version string
	*rig.Server
	processes []int
}

// address returns its address for a transport.
func (c *contestant) address(t load.Transport) netip.AddrPort {
	if t.Secure() {
		return c.TLS
	}
	return c.DNS
}

func (b *bench) close() {
	for _, c := range b.running {
		c.Stop()
	}
	if b.api != nil {
		if err := b.api.Close(); err != nil {
			b.log.Error("stopping the control plane", "err", err)
		}
	}
}

// prepare builds the programs, creates the cluster and starts all contenders.
func (b *bench) prepare(ctx context.Context) error {
	names, err := rig.Choose(workloadNames(), b.workloads)
	if err != nil {
		return err
	}
	for _, w := range workloads() {
		if slices.Contains(names, w.name) {
			b.chosen = append(b.chosen, w)
		}
	}
	if names, err = rig.Choose(contenderNames(), b.contenders); err != nil {
		return err
	}
	if b.base == "" {
		names = slices.DeleteFunc(names, func(n string) bool { return n == base })
	}
	if b.workshop, err = rig.NewWorkshop(ctx, b.log, b.dir); err != nil {
		return err
	}
	if b.generator, err = b.workshop.Tool(ctx, "load/generator"); err != nil {
		return err
	}
	if b.tree == "" {
		b.tree = b.workshop.Tree
	}
	if b.certificate, err = b.makeCertificate(); err != nil {
		return err
	}
	if err := b.makeCluster(ctx, names); err != nil {
		return err
	}
	return b.startAll(ctx, names)
}

func (b *bench) makeCertificate() (rig.Certificate, error) {
	const day = 24 * time.Hour
	c, err := testcert.New("bench", time.Now().Add(day))
	if err != nil {
		return rig.Certificate{}, err
	}
	file, key, err := c.Write(b.dir)
	return rig.Certificate{File: file, Key: key}, err
}

// makeCluster creates the cluster where these contenders can read it, and writes
// Portolan's zones of it into zone files.
func (b *bench) makeCluster(ctx context.Context, names []string) (err error) {
	b.log.Info("making the cluster", "services", b.cluster.Services)
	source := b.writeManifest
	if slices.Contains(names, coreDNS) || slices.Contains(names, coreDNSCached) {
		source = b.fillAPI
	}
	if b.source, err = source(ctx); err != nil {
		return err
	}
	b.zones, err = b.writeZones(ctx)
	return err
}

// fillAPI starts an API server with the cluster, and returns the flags with which
// Portolan reads it.
func (b *bench) fillAPI(ctx context.Context) (flags []string, err error) {
	b.api, err = controlplane.Start(ctx, controlplane.Options{Log: b.log})
	if err != nil {
		return nil, err
	}
	client, err := synthetic.NewClient(b.api.RESTConfig())
	if err != nil {
		return nil, err
	}
	return []string{"--kubeconfig", b.api.Kubeconfig()}, b.cluster.Create(ctx, client)
}

// writeManifest is like fillAPI, with a file of manifests.
func (b *bench) writeManifest(context.Context) (flags []string, err error) {
	file := b.file("cluster.yaml")
	return []string{"--manifests", file}, b.cluster.WriteManifests(file)
}

// zoneFile is a zone in a master file.
type zoneFile struct{ name, file string }

// writeZones writes a file for each zone that Portolan prints. A zone begins with its
// SOA record, and an empty line separates zones.
func (b *bench) writeZones(ctx context.Context) (all []zoneFile, err error) {
	program, err := b.workshop.PortolanOf(ctx, b.tree, portolan)
	if err != nil {
		return nil, err
	}
	config := b.file("zones.yaml")
	if err := os.WriteFile(config, []byte(portolanConfig), 0o600); err != nil {
		return nil, err
	}
	text, err := program.Command(append([]string{"zone", "--config", config}, b.source...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("portolan zone: %w", err)
	}
	for zone := range strings.SplitSeq(string(text), "\n\n") {
		name, _, ok := strings.Cut(zone, "\t")
		if !ok {
			return nil, errors.New("portolan zone: a zone without records")
		}
		z := zoneFile{name, b.file(name + "zone")}
		if err := os.WriteFile(z.file, []byte(zone+"\n"), 0o600); err != nil {
			return nil, err
		}
		all = append(all, z)
	}
	return all, nil
}

// startAll starts the contenders. It skips those that are not available.
func (b *bench) startAll(ctx context.Context, names []string) error {
	for _, name := range names {
		e, err := b.entrants()[name](ctx)
		if err != nil {
			b.log.Warn("leaving out a contender", "name", name, "err", err)
			continue
		}
		b.log.Info("starting", "contender", name, "version", e.version)
		e.CPUs = []int{serverCPU}
		server, err := e.Start()
		if err != nil {
			return err
		}
		c := &contestant{name: name, version: e.version, Server: server}
		b.running = append(b.running, c)
		if err := server.WaitReady(ctx); err != nil {
			return err
		}
		if c.processes, err = server.Processes(); err != nil {
			return err
		}
	}
	if len(b.running) == 0 {
		return errors.New("no contender is left")
	}
	return nil
}
