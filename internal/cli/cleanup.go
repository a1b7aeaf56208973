package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	networkapp "portolan.dev/portolan/internal/network/app"
	"portolan.dev/portolan/internal/node/hostnet"
	policynft "portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/proxy/nft"
)

func newCleanup() *cobra.Command {
	var flags sourceFlags
	var ofKubeProxy bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what Portolan left in this host's kernel",
		Long: `Remove what Portolan left in this host's kernel, and print it, one line each: the
nftables tables of the service proxy, of policies and of the network of Pods, the
routes, tunnels and links of Pods and the CNI configuration of that network, and the
device and the table of a DNS agent that was killed, on a kernel that does not remove
them itself. Stop the processes first: Pods that run lose their network, and beside an
agent that makes it nothing of the network is removed. What a service proxy that runs
has stays on Linux 6.9 and newer; on older kernels it is removed, and the proxy
restores it, as the agent does with policies. If there is nothing, it does nothing.

With --kube-proxy it also removes what kube-proxy left, of all its modes. Rules of
other programs and of the kubelet stay.`,
		Example: `  portolan cleanup
  portolan cleanup --kube-proxy
  portolan cleanup --config /etc/portolan/config.yaml`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read()
			if err != nil {
				return err
			}
			removals := []func() ([]string, error){
				func() ([]string, error) { return removeProxy(&c) },
				func() ([]string, error) { return networkapp.Remove(c.Network) },
				func() ([]string, error) { return removePolicy(&c) },
				func() ([]string, error) { return hostnet.Remove(c.Node.Device) },
			}
			if ofKubeProxy {
				removals = append(removals, removeKubeProxy)
			}
			for _, remove := range removals {
				removed, err := remove()
				for _, what := range removed {
					fmt.Fprintln(cmd.OutOrStdout(), "removed", what)
				}
				if errors.Is(err, fs.ErrPermission) {
					return fmt.Errorf("%w (%w)", err, errCapability)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags.addConfig(cmd)
	cmd.Flags().BoolVar(&ofKubeProxy, "kube-proxy", false, "also remove what kube-proxy left")
	return cmd
}

// removeProxy removes the tables of the service proxy.
func removeProxy(c *config.Config) ([]string, error) {
	compiled, err := c.Compile()
	if err != nil {
		return nil, err
	}
	removed, err := nft.Remove(compiled.Proxy.Table.Name)
	if errors.Is(err, nft.ErrOwned) {
		err = fmt.Errorf("%w; stop portolan proxy or portolan node first", err)
	}
	return removed, err
}

// removePolicy removes the table of policies.
func removePolicy(c *config.Config) ([]string, error) {
	removed, err := policynft.Cleanup(c.Policy.Table)
	if !removed {
		return nil, err
	}
	return []string{"nftables table inet " + c.Policy.Table}, err
}

// removeKubeProxy removes what kube-proxy left.
func removeKubeProxy() ([]string, error) {
	left, err := nft.FindKubeProxy()
	if err != nil {
		return nil, err
	}
	return left.List(), left.Remove()
}
