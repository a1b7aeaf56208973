package cli

import "github.com/spf13/cobra"

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Find out what NetworkPolicies change",
		Long:  `Find out what NetworkPolicies and ClusterNetworkPolicies change.`,
	}
	group(cmd)
	cmd.AddCommand()
	return cmd
}
