// Command flannel is flannel's daemon with two of its backends: see README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw" // the backend host-gw
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"  // the backend vxlan
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

func main() {
	var kubeconfig, conf, device, env string
	flag.StringVar(&kubeconfig, "kubeconfig-file", "", "of the API server")
	flag.StringVar(&conf, "net-config-path", "", "the network's configuration")
	flag.StringVar(&device, "iface", "", "of the link to other nodes")
	flag.StringVar(&env, "subnet-file", "", "is written when routes are followed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, kubeconfig, conf, device, env); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "flannel:", err)
		os.Exit(1)
	}
}

// run does what flannel's main function does with --kube-subnet-mgr and --ip-masq.
func run(ctx context.Context, kubeconfig, conf, device, env string) error {
	const prefix = "flannel.alpha.coreos.com" // the default
	sm, err := kube.NewSubnetManager(ctx, "", kubeconfig, prefix, conf, false)
	if err != nil {
		return fmt.Errorf("subnet manager: %w", err)
	}
	network, err := sm.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	families, err := ipmatch.GetIPFamily(network.EnableIPv4, network.EnableIPv6)
	if err != nil {
		return err
	}
	uplink, err := ipmatch.LookupExtIface(device, "", "", families, ipmatch.PublicIPOpts{})
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	kind, err := backend.NewManager(ctx, sm, uplink).GetBackend(network.BackendType)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	registered, err := kind.RegisterNetwork(ctx, &running, network)
	if err != nil {
		return fmt.Errorf("backend %s: %w", network.BackendType, err)
	}
	if err := masquerade(ctx, network, registered.Lease()); err != nil {
		return err
	}
	own := registered.Lease()
	if err := sm.HandleSubnetFile(env, network, true, own.Subnet, own.IPv6Subnet, registered.MTU()); err != nil {
		return err
	}
	registered.Run(ctx)
	running.Wait()
	return nil
}

// masquerade writes the rules, as flannel does with EnableNFTables.
func masquerade(ctx context.Context, network *subnet.Config, own *lease.Lease) error {
	const seconds = 5 // the default
	var rules trafficmngr.TrafficManager = new(nftables.NFTablesManager)
	if err := rules.Init(ctx); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	rules.SetupAndEnsureForwardRules(ctx, network.Network, network.IPv6Network, seconds)
	var none4 ip.IP4Net // of a start before
	var none6 ip.IP6Net
	return rules.SetupAndEnsureMasqRules(
		ctx, network.Network, none4, none4, network.IPv6Network, none6, none6, own, seconds, false,
	)
}
