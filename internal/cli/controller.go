package cli

import (
	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
)

func newController() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run a controller of a cluster",
		Long: `Run a controller of a cluster. Most clusters already have slices and nodes in
kube-controller-manager. Only one of the two may run; the help of each command says how.`,
		Example: `  portolan controller slices
  portolan controller nodes --cluster-cidr 10.244.0.0/16`,
	}
	cmd.AddCommand(newSlices(), newNodes(), newLoadBalancer())
	group(cmd)
	return cmd
}

func newSlices() *cobra.Command {
	var flags controllerFlags
	var maxEndpoints int
	cmd := &cobra.Command{
		Use:   "slices",
		Short: "Manage the EndpointSlices of Services with selectors",
		Long: `Manage the EndpointSlices of Services with selectors, until SIGTERM or SIGINT, as
kube-controller-manager's endpointslice-controller does.

Never run both: start kube-controller-manager with
--controllers=*,-endpointslice-controller first. Several processes elect a leader
with a Lease; another one takes over when the leader ends.`,
		Example: `  portolan controller slices
  portolan controller slices --kubeconfig ~/.kube/config --max-endpoints-per-slice 1000`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("max-endpoints-per-slice") {
				c.Controller.MaxEndpointsPerSlice = maxEndpoints
			}
			return process{assemble: assembly.slices}.run(cmd, c)
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVar(
		&maxEndpoints, "max-endpoints-per-slice", 0,
		"at most `N` endpoints per EndpointSlice, 1 to 1000 (default 100)",
	)
	_ = cmd.RegisterFlagCompletionFunc("max-endpoints-per-slice", cobra.NoFileCompletions)
	return cmd
}

func newNodes() *cobra.Command {
	var flags controllerFlags
	var cidrs []string
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Give Nodes ranges of Pod addresses",
		Long: `Set spec.podCIDRs of Nodes that have none, until SIGTERM or SIGINT, as
kube-controller-manager's node-ipam-controller does with --allocate-node-cidrs.

Never run both: start kube-controller-manager with --allocate-node-cidrs=false first.
Ranges that Nodes have already stay, whoever gave them. Several processes elect a leader
with a Lease; another one takes over when the leader ends.`,
		Example: `  portolan controller nodes --cluster-cidr 10.244.0.0/16
  portolan controller nodes --cluster-cidr 10.244.0.0/16 --cluster-cidr fd00:10:244::/48`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("cluster-cidr") {
				c.Controller.Nodes.ClusterCIDRs = cidrs
			}
			return process{assemble: assembly.nodes}.run(cmd, c)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringSliceVar(
		&cidrs, "cluster-cidr", nil, "the range `CIDR` of all Pod addresses, or one of each family, repeatable",
	)
	_ = cmd.RegisterFlagCompletionFunc("cluster-cidr", cobra.NoFileCompletions)
	return cmd
}

func newLoadBalancer() *cobra.Command {
	var flags controllerFlags
	cmd := &cobra.Command{
		Use:   "loadbalancer",
		Short: "Give Services of type LoadBalancer addresses",
		Long: `Give Services of type LoadBalancer addresses of pools, which the key
controller.loadBalancer.pools of the configuration file has, until SIGTERM or SIGINT.

The addresses are in the statuses of the Services; what makes them reach the cluster is
another program. Several processes elect a leader with a Lease; another one takes over
when the leader ends.`,
		Example:           `  portolan controller loadbalancer --config pools.yaml`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			return process{assemble: assembly.loadBalancer}.run(cmd, c)
		},
	}
	flags.add(cmd)
	return cmd
}

// controllerFlags are the flags of all controllers; they override the configuration.
type controllerFlags struct {
	sourceFlags
	admin string
}

func (f *controllerFlags) add(cmd *cobra.Command) {
	f.addCluster(cmd)
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health and metrics over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *controllerFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	return c, err
}
