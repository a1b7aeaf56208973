// Package app assembles the network of a node's Pods: it follows the model, programs the routes to the Pods of other
// nodes, and makes the links of its own.
//
//	cluster.Store ──feed──► plan.Compiler ──► route.Router ──► kernel: routes, tunnels
//	                                     ├──► Tunnels ───────► kernel: encryption
//	                                     └──► nft.Table ─────► kernel: masquerade
//	portolan cni ──► socket.Server ──► sandboxes ──► ipam.Pool, link, nft.Table ──► kernel: links, hostPorts
//	                                       └──► Admission: the policies of the Pod
//
// What is in the kernel stays when the process ends, so that Pods have their network while it is replaced;
// `portolan cleanup` removes it.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/conflist"
	"portolan.dev/portolan/internal/cni/socket"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/settings"
	"portolan.dev/portolan/internal/support/filelock"
	"portolan.dev/portolan/internal/support/programmer"
)

// Config configures a Network.
type Config struct {
	Settings config.Config
	Store    *cluster.Store
	Log      *slog.Logger
	// Node is the name of the Node.
	Node string
	// Admission has the policies of Pods in the kernel before their links are up; nil if the process has none.
	Admission Admission
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	// Publish has the own Node have the public key of this node, in base64; nil if nothing can be written.
	Publish func(ctx context.Context, key string) error
	// Loaded is called when the kernel has the routes for the first time.
	Loaded func()
}

// Network is the part of a node that connects its Pods.
type Network struct {
	cfg       Config
	settings  settings.Compiled
	metrics   *networkMetrics
	worker    *worker
	installed conflist.Installation
}

// New returns a Network. It returns an error if the settings are invalid. It starts nothing.
func New(cfg Config) (*Network, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	n := &Network{cfg: cfg, settings: compiled.Network}
	n.worker = newWorker(&n.cfg, &n.settings)
	n.metrics = newMetrics(n)
	return n, nil
}

// Name returns the part's name.
func (n *Network) Name() string { return "network" }

// Needs returns the kinds that routes are compiled from.
func (n *Network) Needs() []cluster.Kind { return plan.Kinds() }

// Bind finds out whether the kernel has what the network needs. It changes when the cluster is known, and no other
// process programs it.
func (n *Network) Bind(context.Context) (serving []any, err error) {
	if n.worker.router, err = route.New(route.Config{Log: n.cfg.Log}); err != nil {
		return nil, programmer.WithCure(err)
	}
	n.worker.table = nft.New(tableConfig(n.cfg.Node, &n.settings))
	return []any{"node", n.cfg.Node, "socket", n.settings.CNI.Socket}, nil
}

// planConfig and tableConfig return what settings are for a Node. Packets to the port of tunnels are only checked where
// there may be some: elsewhere the port may be another program's.
func planConfig(node string, s *settings.Compiled) plan.Config {
	return plan.Config{
		Node: node, Encapsulation: s.Encapsulation, VNI: s.VNI, Port: s.Port, MTU: s.MTU,
		NodesOutside: s.NodesOutside, NonMasquerade: s.NonMasquerade,
		Encryption: s.Encryption, Keyless: s.Keyless, WireGuardPort: s.WireGuardPort,
	}
}

func tableConfig(node string, s *settings.Compiled) nft.Config {
	table := nft.Config{Name: s.Table, KeepSource: !s.Masquerade}
	if routes := planConfig(node, s); routes.HasVXLAN() {
		table.TunnelPort = routes.Port
	}
	return table
}

// Close closes the sockets. What is in the kernel stays.
func (n *Network) Close() {
	if n.worker.router != nil {
		n.worker.router.Close()
	}
	if n.worker.table != nil {
		n.worker.table.Close()
	}
}

// Ready describes what is missing until Pods can have their links, and other problems.
func (n *Network) Ready() (missing, remarks []string) {
	missing, remarks = n.worker.programmer.Ready(func() error {
		if n.cfg.Problem == nil {
			return nil
		}
		return n.cfg.Problem(n.Needs()...)
	})
	if err := n.worker.problem(); err != nil && len(missing)+len(remarks) == 0 {
		missing = append(missing, err.Error())
	}
	if err := n.installed.Err(); err != nil {
		missing = append(missing, "the CNI plugin is not installed: "+err.Error())
	}
	return missing, append(remarks, n.worker.remarks()...)
}

// Metrics returns the collector of the part's metrics.
func (n *Network) Metrics() prometheus.Collector { return n.metrics }

// Run keeps the kernel current and answers the CNI plugin until ctx is done, and returns nil. Until the cluster is
// known the kernel keeps what it has.
func (n *Network) Run(ctx context.Context) error {
	if n.cfg.Admission != nil {
		defer n.cfg.Admission.End()
	}
	node, err := n.acquireNode(ctx)
	if node == nil {
		return err
	}
	if n.cfg.Admission != nil {
		n.cfg.Admission.Begin()
	}
	defer func() {
		n.worker.table.Close() // before the next process begins, which cannot program a table that this one has
		node.Close()
	}()
	boxes := &sandboxes{
		links: kernelLinks{}, ports: n.worker, admission: n.cfg.Admission, node: n.worker.link, await: n.worker.await,
		flows: trackedFlows{n.cfg.Log}, log: n.cfg.Log, busy: make(map[attach.ID]*turn),
	}
	// Before the records are read: while no agent listens, the plugin removes those of Pods that end.
	server, err := socket.Listen(ctx, socket.Config{
		Path: n.settings.CNI.Socket, Handle: boxes.handle, Late: errLate, Observe: n.metrics.observe, Log: n.cfg.Log,
	})
	if err != nil {
		return err
	}
	if err := n.restore(boxes); err != nil {
		server.Close()
		return err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return n.worker.router.Run(running) })
	group.Go(func() error { return n.worker.run(running) })
	group.Go(func() error { return n.worker.keys.run(running) })
	group.Go(func() error { return server.Run(running) })
	group.Go(func() error {
		select {
		case <-n.worker.usable: // so that policies can be released
			boxes.endAll(running)
		case <-running.Done():
		}
		return nil
	})
	if n.settings.CNI.Install {
		group.Go(func() error {
			select {
			case <-n.worker.usable: // a node with a configuration is one that Pods are scheduled to
			case <-running.Done():
				return nil
			}
			return conflist.Follow(running, n.conflist(), n.cfg.Log)
		})
	}
	return group.Wait()
}

// reuseAfter is for how long an address is not given to another Pod, also after a restart, while there are others:
// longer than connections of others to it take to end.
const reuseAfter = time.Minute

// errLate is the cause that ends a request that takes too long.
var errLate = errors.New("the link is not made in time")

// acquireNode waits until no other process makes the network of the node, and none has the records, and returns what
// shows others that this one does; nil if ctx is done before. The records are those of a socket, and the kernel is the
// node's: two agents with sockets in different directories must not program it both.
func (n *Network) acquireNode(ctx context.Context) (held io.Closer, err error) {
	standby := func() { n.worker.programmer.SetStandby(true) }
	records, err := filelock.Acquire(ctx, filepath.Join(filepath.Dir(n.settings.CNI.Socket), "network.lock"), standby)
	if records == nil {
		return nil, lockError(err)
	}
	node, err := filelock.AcquireNetwork(ctx, standby)
	if node == nil {
		return nil, errors.Join(lockError(err), records.Close())
	}
	n.worker.programmer.SetStandby(false)
	return locks{records, node}, nil
}

func lockError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock of the network: %w", err)
}

// locks are files that are locked.
type locks []*os.File

// Close unlocks them, the last one first.
func (l locks) Close() error {
	var errs []error
	for _, f := range slices.Backward(l) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// open reads the records of Pods' addresses. The ranges are known with the cluster.
func (n *Network) open() (*ipam.Pool, error) {
	return ipam.Open(ipam.Config{
		Dir: attach.LinkRecords(n.settings.CNI.Socket), Reuse: reuseAfter, Now: time.Now, Log: n.cfg.Log,
	})
}

// restore reads what the process before recorded, and brings the kernel to it.
func (n *Network) restore(boxes *sandboxes) error {
	pool, err := n.open()
	if err != nil {
		return err
	}
	boxes.pool = pool
	n.worker.pool, n.worker.boxes = pool, boxes
	n.metrics.pool.Store(pool)
	owners, err := boxes.restore()
	if err != nil {
		return err
	}
	if err := n.worker.table.Restore(owners); err != nil {
		n.cfg.Log.Warn("ports of the node do not lead to Pods", "err", err)
	}
	return nil
}

// conflist is where the plugin is installed.
func (n *Network) conflist() conflist.Config {
	c := n.settings.CNI
	return conflist.Config{
		BinDir: c.BinDir, ConfDir: c.ConfDir, Socket: c.Socket, Own: settings.ConfName, Observe: n.installed.Observe,
	}
}

// kernelLinks are the links of package link.
type kernelLinks struct{}

func (kernelLinks) Create(cfg link.Config, pod link.Pod) (int, error) { return link.Create(cfg, pod) }
func (kernelLinks) Up(cfg link.Config, pod link.Pod) error            { return link.Up(cfg, pod) }
func (kernelLinks) Check(cfg link.Config, pod link.Pod) error         { return link.Check(cfg, pod) }
func (kernelLinks) Refresh(cfg link.Config, pod link.Pod) error       { return link.Refresh(cfg, pod) }
func (kernelLinks) Delete(host string) error                          { return link.Delete(host) }
func (kernelLinks) Prune() error                                      { return link.Prune() }
func (kernelLinks) List() ([]string, error)                           { return link.List() }
