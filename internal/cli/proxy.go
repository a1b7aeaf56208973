package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	"portolan.dev/portolan/internal/migrate"
	"portolan.dev/portolan/internal/migrate/kubeproxy"
	proxyapp "portolan.dev/portolan/internal/proxy/app"
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
again. "portolan cleanup" removes it.

The configuration may be kube-proxy's own, a KubeProxyConfiguration: "portolan config
from-kube-proxy" shows what it becomes.`,
		Example: `  portolan proxy --cluster-cidr 10.244.0.0/16
  portolan proxy --config /var/lib/kube-proxy/config.conf --hostname-override node-1
  portolan proxy --manifests examples/shop --node-name node-1`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if flags.initOnly {
				log := newLogger(c.Log, new(slog.LevelVar), cmd.ErrOrStderr())
				flags.tell(log)
				return proxyapp.Init(&c, log)
			}
			return process{assemble: func(a assembly) (*daemon.Config, error) {
				flags.tell(a.log)
				return a.proxy()
			}}.run(cmd, c)
		},
	}
	flags.add(cmd)
	return cmd
}

// proxyFlags are the flags of proxy; they override the configuration.
type proxyFlags struct {
	sourceFlags
	admin     string
	nodeName  string
	cidrs     []string
	replace   bool
	initOnly  bool
	cleanup   bool
	verbosity int

	notes []migrate.Note // on the configuration, if it is kube-proxy's
}

func (f *proxyFlags) add(cmd *cobra.Command) {
	f.sourceFlags.add(cmd)
	f.parse = f.parseFile
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health, metrics and dumps over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	cmd.Flags().StringVar(
		&f.nodeName, "node-name", "",
		"the `NAME` of the Node, also --hostname-override (default $NODE_NAME, or the host name)",
	)
	cmd.Flags().StringSliceVar(
		&f.cidrs, "cluster-cidr", nil, "the `RANGE` of the Pods' addresses, one of each family",
	)
	cmd.Flags().BoolVar(
		&f.replace, "replace-kube-proxy", false, "remove the rules of kube-proxy when those of the proxy are there",
	)
	cmd.Flags().BoolVar(
		&f.initOnly, "init-only", false,
		"make the settings of connection tracking, which needs privileges, and exit",
	)
	f.addKubeProxys(cmd)
	for _, flag := range []string{"admin", "node-name", "cluster-cidr"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// addKubeProxys adds flags that only commands made for kube-proxy have.
func (f *proxyFlags) addKubeProxys(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&f.verbosity, "v", "v", 0, "log at level debug if `NUMBER` is 4 or more")
	cmd.Flags().BoolVar(&f.cleanup, "cleanup", false, "fails: see portolan cleanup")
	for _, flag := range []string{"v", "cleanup"} {
		_ = cmd.Flags().MarkHidden(flag) // fails only for unknown flags
	}
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "hostname-override" {
			name = "node-name"
		}
		return pflag.NormalizedName(name)
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			if hint := kubeproxy.FlagHint(unknown.GetSpecifiedName()); hint != "" {
				return fmt.Errorf("%w; %s", err, hint)
			}
		}
		return flagError(cmd, err)
	})
}

// parseFile parses a configuration file, of this program or of kube-proxy.
func (f *proxyFlags) parseFile(path string, text []byte) (config.Config, error) {
	if !kubeproxy.Is(text) {
		return config.Parse(path, text)
	}
	t, err := kubeproxy.Parse(path, text)
	if err != nil {
		return config.Config{}, err
	}
	f.notes = t.Notes
	return t.Config, nil
}

// tell logs what is different from what kube-proxy's configuration says.
func (f *proxyFlags) tell(log *slog.Logger) {
	(&notices{what: "kube-proxy's configuration", log: log}).tell(f.notes)
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *proxyFlags) read(cmd *cobra.Command) (config.Config, error) {
	if f.cleanup {
		return config.Config{}, errors.New("--cleanup is a command of its own: " +
			`"portolan cleanup" removes the rules of this proxy, and with --kube-proxy those of kube-proxy, too`)
	}
	c, err := f.sourceFlags.read()
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	if f.nodeName != "" {
		c.Proxy.NodeName = strings.ToLower(f.nodeName)
	}
	if len(f.cidrs) > 0 {
		c.Proxy.DetectLocal.ClusterCIDRs = f.cidrs
	}
	if f.verbosity >= kubeproxy.DebugVerbosity {
		c.Log.Level = "debug"
	}
	c.Proxy.ReplaceKubeProxy = c.Proxy.ReplaceKubeProxy || f.replace
	return c, err
}
