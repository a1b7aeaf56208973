package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

func newNode() *cobra.Command {
	var flags agentFlags
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the agent of a node: cluster DNS, the service proxy, the Pod network, policies",
		Long: `Serve cluster DNS to the Pods of a node, until SIGTERM or SIGINT.

In mode secondary the agent holds a copy of the cluster's zones, by zone transfer.
In mode cache it forwards queries to the cluster's servers and caches the answers,
as the KEP "DNS Autopath in PodSpec" describes. Queries for other names go to
upstreams directly.

The agent assigns its addresses to the node and exempts packets to them from
connection tracking. Both are removed when the process ends, even if it is killed.
Without addresses it listens on --listen.

With --parts dns,proxy the same process is the service proxy of the node, see
"portolan proxy"; with --parts proxy it is that alone. With the part policy it
enforces NetworkPolicies and ClusterNetworkPolicies for the node's Pods. With the
part network it gives them addresses out of the Node's podCIDRs, links, and routes
to the Pods of other nodes: container runtimes call "portolan cni" for each Pod.
These parts read the cluster from the Kubernetes API or from manifests; DNS does
not.`,
		Example: `  portolan node --address 169.254.20.10 --server 10.96.0.11
  portolan node --mode cache --listen 127.0.0.1:1053 --server 10.96.0.10
  portolan node --parts dns,proxy --address 10.96.0.10 --server 10.96.0.11 --config node.yaml
  portolan node --parts policy
  portolan node --parts dns,proxy,network,policy --config node.yaml`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			return process{
				assemble: assembly.node, conditions: []key.Condition{key.OnNode},
				follow: &config.Follower{Text: flags.text, Read: flags.content, Parse: func(text []byte) (config.Config, error) {
					flags.text = text
					return flags.read(cmd)
				}},
			}.run(cmd, c)
		},
	}
	flags.add(cmd)
	return cmd
}

// agentFlags are the flags of node; they override the configuration.
type agentFlags struct {
	sourceFlags
	parts     []string
	mode      string
	addresses []string
	servers   []string
	listen    []string
	admin     string
	cniSocket string
}

func (f *agentFlags) add(cmd *cobra.Command) {
	f.sourceFlags.add(cmd)
	cmd.Flags().StringSliceVar(
		&f.parts, "parts", nil, "what the agent does, a `LIST` of dns, proxy, network and policy (default dns)",
	)
	cmd.Flags().StringVar(
		&f.mode, "mode", "",
		"resolve the cluster's names as a `secondary` of the zones or through a cache (default secondary)",
	)
	cmd.Flags().StringArrayVar(&f.addresses, "address", nil, "assign this `ADDR` to the node and listen on it, repeatable")
	cmd.Flags().StringArrayVar(&f.servers, "server", nil, "the `ADDR` of a DNS server of the cluster, repeatable")
	cmd.Flags().StringArrayVar(
		&f.listen, "listen", nil,
		"without --address, serve UDP and TCP on `ADDR:PORT`, repeatable (default 127.0.0.1:1053)",
	)
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health, metrics and dumps over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	cmd.Flags().StringVar(
		&f.cniSocket, "cni-socket", "",
		"listen for the CNI plugin on the Unix socket `PATH`; empty disables it without the part network "+
			"(default /run/portolan/cni.sock)",
	)
	for _, flag := range []string{"address", "server", "listen", "admin"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc(
		"parts",
		cobra.FixedCompletions(
			append(dnssettings.Parts(), strings.Join(dnssettings.Parts(), ",")),
			cobra.ShellCompDirectiveNoFileComp,
		),
	)
	_ = cmd.RegisterFlagCompletionFunc(
		"mode",
		cobra.FixedCompletions(
			[]string{string(dnssettings.NodeSecondary), string(dnssettings.NodeCache)},
			cobra.ShellCompDirectiveNoFileComp,
		),
	)
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *agentFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
	if len(f.parts) > 0 {
		c.Node.Parts = f.parts
	}
	for _, flag := range []string{"kubeconfig", "manifests", "simulate"} {
		if err == nil && cmd.Flags().Changed(flag) && !c.Node.ReadsCluster() {
			return c, fmt.Errorf("--%s has no effect without --parts proxy, network or policy", flag)
		}
	}
	if f.mode != "" {
		c.Node.Mode = f.mode
	}
	if len(f.addresses) > 0 {
		c.Node.Addresses = f.addresses
	}
	if len(f.servers) > 0 {
		c.Node.Servers = f.servers
	}
	if len(f.listen) > 0 {
		c.DNS.Listen = f.listen
	}
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	if cmd.Flags().Changed("cni-socket") {
		if err == nil && !c.Node.Has(dnssettings.PartNetwork) && !c.Node.Has(dnssettings.PartPolicy) {
			return c, errors.New("--cni-socket has no effect without --parts network or policy")
		}
		if c.Node.Has(dnssettings.PartNetwork) {
			c.Network.CNI.Socket = f.cniSocket
		} else {
			c.Policy.CNI.Socket = f.cniSocket
		}
	}
	return c, err
}
