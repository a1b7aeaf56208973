package cli

import (
	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/source"
)

func newTestInit() *cobra.Command {
	var flags struct {
		source sourceFlags
		node   nodeFlags
	}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write assertions on what a cluster allows today",
		Long: `Write a file of assertions on what a cluster allows today: which Pods of each namespace
connect to each Service, and which backends serve each route. It is a first suite to
take assertions from, and to notice what a change allows or breaks.`,
		Example: `  portolan test init --manifests deploy > network.yaml
  portolan test init -n shop > shop.yaml`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := flags.node.read(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			flags.source.also = append([]cluster.Kind{cluster.KindClusterNetworkPolicy}, gatewayKinds...)
			l, err := load(cmd, &flags.source, source.Whole)
			if err != nil {
				return err
			}
			noteAssumed(l.pods, node, cmd.ErrOrStderr())
			return l.pods.WriteSuite(cmd.Context(), cmd.OutOrStdout(), flags.source.access.namespace, node)
		},
	}
	flags.source.addRead(cmd)
	flags.node.add(cmd)
	return cmd
}
