package cli

import (
	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
)

func newNode() *cobra.Command {
	var flags agentFlags
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Serve the names of a cluster on a node, to its Pods",
		Long: `Serve the names of a cluster on a node, to its Pods, until it is told to stop.

The agent keeps a copy of the cluster's zones (mode secondary), or asks the
cluster's servers and keeps their answers (mode cache, as the KEP "DNS Autopath
in PodSpec" has it). Other names it asks of upstream servers itself.

The addresses that it is given it puts on the node, with rules that keep packets
to them out of connection tracking; all of that goes when it ends, however it
does. With none it listens where --listen says.`,
		Example: `  portolan node --address 169.254.20.10 --server 10.96.0.11
  portolan node --mode cache --listen 127.0.0.1:1053 --server 10.96.0.10`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			return process{
				assemble: assembly.node, agent: true,
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

// agentFlags are the flags that override the configuration.
type agentFlags struct {
	sourceFlags
	mode      string
	addresses []string
	servers   []string
	listen    []string
	admin     string
}

func (f *agentFlags) add(cmd *cobra.Command) {
	f.addSettings(cmd)
	cmd.Flags().StringVar(&f.mode, "mode", "", "know the cluster's names as a `secondary` or by a cache (default secondary)")
	cmd.Flags().StringArrayVar(&f.addresses, "address", nil, "put this `ADDR` on the node and listen on it, repeatable")
	cmd.Flags().StringArrayVar(&f.servers, "server", nil, "a DNS server `ADDR` of the cluster, repeatable")
	cmd.Flags().StringArrayVar(&f.listen, "listen", nil, "without --address, serve UDP and TCP on `ADDR:PORT`, repeatable (default 127.0.0.1:1053)")
	cmd.Flags().StringVar(&f.admin, "admin", "", "serve health, metrics and dumps over HTTP on `ADDR:PORT`, or on none when empty (default 127.0.0.1:9153)")
	for _, flag := range []string{"address", "server", "listen", "admin"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{string(config.NodeSecondary), string(config.NodeCache)}, cobra.ShellCompDirectiveNoFileComp))
}

// read is the configuration that the flags make.
func (f *agentFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
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
	return c, err
}
