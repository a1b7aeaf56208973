package cli

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
)

func newGateway() *cobra.Command {
	var flags gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Serve HTTP for Ingresses and Gateway API",
		Long: `Serve the HTTP and HTTPS requests of Ingresses, Gateways and HTTPRoutes until
SIGTERM or SIGINT, and pass them to the endpoints of Services.

The cluster is read from the Kubernetes API or from manifests. Changes take
effect immediately, and break off nothing that is open. An object that cannot be
read affects only its own routes, and its last valid version stays in use.
Manifests rarely have endpoints: --endpoint names a program that runs here.

Ports are those of Ingresses and listeners plus --port-offset: port 80 is 8080 and
443 is 8443 by default. Manifests without an IngressClass have their Ingresses
served, too.`,
		Example: `  portolan gateway --manifests examples/gateway --endpoint shop/web=127.0.0.1:3000
  curl --connect-to ::127.0.0.1:8080 http://shop.example/
  portolan gateway --kubeconfig ~/.kube/config --listen '[::]' --port-offset 0`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			p := process{assemble: assembly.gateway, follow: &config.Follower{
				Text: flags.text, Read: flags.content, Parse: func(text []byte) (config.Config, error) {
					flags.text = text
					return flags.read(cmd)
				},
			}}
			signal.Ignore(syscall.SIGPIPE) // who reads the access log may go, and requests go on
			return p.run(cmd, c)
		},
	}
	flags.add(cmd)
	cmd.AddCommand(newGatewayTranslate())
	return cmd
}

// gatewayFlags are the flags of gateway; they override the configuration.
type gatewayFlags struct {
	sourceFlags
	listen     []string
	portOffset int
	endpoints  []string
	admin      string
}

func (f *gatewayFlags) add(cmd *cobra.Command) {
	f.addConfig(cmd)
	f.addKubeconfig(cmd)
	f.addManifests(cmd)
	cmd.Flags().StringArrayVar(
		&f.listen, "listen", nil, "accept requests at `ADDR`, repeatable; [::] is all addresses (default 127.0.0.1)",
	)
	cmd.Flags().IntVar(
		&f.portOffset, "port-offset", 0, "add `NUMBER` to the ports of Ingresses and listeners (default 8000)",
	)
	cmd.Flags().StringArrayVar(
		&f.endpoints, "endpoint", nil,
		"send requests for a Service to `NAMESPACE/SERVICE=ADDR:PORT`, repeatable, in place of its endpoints",
	)
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health, metrics and dumps over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	for _, flag := range []string{"listen", "port-offset", "endpoint", "admin"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *gatewayFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
	if len(f.listen) > 0 {
		c.Gateway.Listen = f.listen
	}
	if cmd.Flags().Changed("port-offset") {
		c.Gateway.PortOffset = f.portOffset
	}
	if len(f.endpoints) > 0 {
		c.Gateway.Endpoints = f.endpoints
	}
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	return c, err
}
