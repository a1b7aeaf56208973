package cli

import (
	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
)

func newWebhook() *cobra.Command {
	var flags webhookFlags
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Serve the admission webhook",
		Long: `Serve the admission webhook of a cluster over HTTPS, until SIGTERM or SIGINT.

Pods with the annotation portolan.dev/dns-policy: ClusterFirstWithAutopath, or in
a Namespace with that label, get the DNS settings of the KEP DNS Autopath in
PodSpec. Objects with DNS problems get warnings, or are denied if the
configuration says so. Objects that cannot be reviewed are allowed.

The webhook issues and renews its certificate, stores it in a Secret, and writes
its CA bundle into the webhook configurations.`,
		Example: `  portolan webhook --cluster-dns 10.96.0.10
  portolan webhook --kubeconfig ~/.kube/config --cluster-dns 10.96.0.10 --listen 0.0.0.0:8443`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			return process{assemble: assembly.webhook}.run(cmd, c)
		},
	}
	flags.add(cmd)
	return cmd
}

// webhookFlags are the flags of webhook; they override the configuration.
type webhookFlags struct {
	sourceFlags
	listen     string
	admin      string
	clusterDNS []string
}

func (f *webhookFlags) add(cmd *cobra.Command) {
	f.addAPI(cmd)
	cmd.Flags().StringVar(&f.listen, "listen", "", "serve reviews over HTTPS on `ADDR:PORT` (default 127.0.0.1:8443)")
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health and metrics over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	cmd.Flags().StringArrayVar(&f.clusterDNS, "cluster-dns", nil, "a cluster DNS IP (`ADDR`), repeatable")
	for _, flag := range []string{"listen", "admin", "cluster-dns"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *webhookFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
	if f.listen != "" {
		c.Webhook.Listen = f.listen
	}
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	if len(f.clusterDNS) > 0 {
		c.Webhook.ClusterDNS = f.clusterDNS
	}
	return c, err
}
