package cli

import (
	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
)

func newController() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Keep up objects of a cluster, as its control plane would",
		Long: `Keep up objects of a cluster, as its control plane would. Nothing starts these
controllers but the commands below: in most clusters kube-controller-manager does
the same, and there must be one who does.`,
		Example: `  portolan controller slices`,
	}
	cmd.AddCommand(newSlices())
	group(cmd)
	return cmd
}

func newSlices() *cobra.Command {
	var flags controllerFlags
	cmd := &cobra.Command{
		Use:   "slices",
		Short: "Make the EndpointSlices of Services with selectors",
		Long: `Make the EndpointSlices of a cluster's Services with selectors, until it is told
to stop, as kube-controller-manager's endpointslice-controller does.

Never run it beside that one: start kube-controller-manager with
--controllers=*,-endpointslice-controller first. Of several processes one works, the
one that holds a Lease; the others take over when it ends.`,
		Example: `  portolan controller slices
  portolan controller slices --kubeconfig ~/.kube/config --max-endpoints-per-slice 1000`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			return process{assemble: assembly.slices}.run(cmd, c)
		},
	}
	flags.add(cmd)
	return cmd
}

// controllerFlags are the flags that override the configuration.
type controllerFlags struct {
	sourceFlags
	admin        string
	maxEndpoints int
}

func (f *controllerFlags) add(cmd *cobra.Command) {
	f.addCluster(cmd)
	cmd.Flags().StringVar(&f.admin, "admin", "", "serve health and metrics over HTTP on `ADDR:PORT`, or on none when empty (default 127.0.0.1:9153)")
	cmd.Flags().IntVar(&f.maxEndpoints, "max-endpoints-per-slice", 0, "put at most `N` endpoints into a slice, 1 to 1000 (default 100)")
	for _, flag := range []string{"admin", "max-endpoints-per-slice"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// read is the configuration that the flags make.
func (f *controllerFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	if cmd.Flags().Changed("max-endpoints-per-slice") {
		c.Controller.MaxEndpointsPerSlice = f.maxEndpoints
	}
	return c, err
}
