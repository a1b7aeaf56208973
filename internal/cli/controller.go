package cli

import (
	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
)

func newController() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run a controller of a cluster",
		Long: `Run a controller that most clusters already have in kube-controller-manager. Only
one of the two may run; the help of each command says how.`,
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
			return process{assemble: assembly.slices}.run(cmd, c)
		},
	}
	flags.add(cmd)
	return cmd
}

// controllerFlags are the flags of controller slices; they override the
// configuration.
type controllerFlags struct {
	sourceFlags
	admin        string
	maxEndpoints int
}

func (f *controllerFlags) add(cmd *cobra.Command) {
	f.addCluster(cmd)
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health and metrics over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	cmd.Flags().IntVar(
		&f.maxEndpoints, "max-endpoints-per-slice", 0,
		"at most `N` endpoints per EndpointSlice, 1 to 1000 (default 100)",
	)
	for _, flag := range []string{"admin", "max-endpoints-per-slice"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// read returns the configuration: the defaults, the file, then the flags.
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
