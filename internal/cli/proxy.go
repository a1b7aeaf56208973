package cli

import (
	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
)

func newProxy() *cobra.Command {
	var flags proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Deliver packets for Services on a node, in place of kube-proxy",
		Long: `Deliver packets for the virtual IPs of Services to their endpoints, by nftables,
until SIGTERM or SIGINT.

The cluster is read from the Kubernetes API or from manifests. What is in the kernel
stays when the process ends, so that Services remain reachable until it is started
again. "portolan cleanup" removes it.`,
		Example: `  portolan proxy --cluster-cidr 10.244.0.0/16
  portolan proxy --manifests examples/shop --node-name node-1`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			return process{assemble: assembly.proxy}.run(cmd, c)
		},
	}
	flags.add(cmd)
	return cmd
}

// proxyFlags are the flags of proxy; they override the configuration.
type proxyFlags struct {
	sourceFlags
	admin    string
	nodeName string
	cidrs    []string
	replace  bool
}

func (f *proxyFlags) add(cmd *cobra.Command) {
	f.sourceFlags.add(cmd)
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health, metrics and dumps over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	cmd.Flags().StringVar(
		&f.nodeName, "node-name", "", "the `NAME` of the Node (default $NODE_NAME, or the host name)",
	)
	cmd.Flags().StringSliceVar(
		&f.cidrs, "cluster-cidr", nil, "the `RANGE` of the Pods' addresses, one of each family",
	)
	cmd.Flags().BoolVar(
		&f.replace, "replace-kube-proxy", false, "remove the rules of kube-proxy when those of the proxy are there",
	)
	for _, flag := range []string{"admin", "node-name", "cluster-cidr"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *proxyFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	if f.nodeName != "" {
		c.Proxy.NodeName = f.nodeName
	}
	if len(f.cidrs) > 0 {
		c.Proxy.DetectLocal.ClusterCIDRs = f.cidrs
	}
	c.Proxy.ReplaceKubeProxy = c.Proxy.ReplaceKubeProxy || f.replace
	return c, err
}
