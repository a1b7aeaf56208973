package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/conflist"
	"portolan.dev/portolan/internal/cni/plugin"
	"portolan.dev/portolan/internal/pod/explain"
)

func newCNI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cni",
		Short: "Connect Pods, or have them wait for their policies, as a CNI plugin",
		Long: `A container runtime calls this program as a CNI plugin, with the environment
variable CNI_COMMAND. As the only plugin of a network it has the agent on the node
make each new Pod's link, with the part network. Behind the plugin of another network
it waits until the agent has the Pod's policies in the kernel, with the part policy.
Without the agent no Pod starts; the kubelet tries again.

The agent installs it. "portolan cni install" puts it into another network by hand.`,
		Example: `  portolan cni install
  portolan cni uninstall`,
	}
	cmd.AddCommand(newCNIInstall(), newCNIUninstall())
	group(cmd)
	help := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || !plugin.Called() {
			return help(cmd, args)
		}
		if plugin.Run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()) != 0 {
			return errNegative
		}
		return nil
	}
	return cmd
}

func newCNIInstall() *cobra.Command {
	var cfg conflist.Config
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the plugin for the network of this node",
		Long: `Copy this program into the directory of CNI plugins, and add it to the network
configuration that the container runtime loads: the first file by name. Everything
else in the file stays as it is. A file with the extension .conf or .json gets a
list beside it and another name.

Print what changed, one line each; if everything is in place, nothing. From then on
no Pod starts on this node without the agent.`,
		Example: `  portolan cni install
  portolan cni install --bin-dir /host/opt/cni/bin --conf-dir /host/etc/cni/net.d`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return install(cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addDirectories(cmd, &cfg)
	cmd.Flags().StringVar(&cfg.Socket, "cni-socket", attach.DefaultSocket, "the `PATH` of the agent's socket, on the host")
	_ = cmd.MarkFlagFilename("cni-socket") // fails only for unknown flags
	return cmd
}

func install(cfg conflist.Config, stdout, stderr io.Writer) error {
	if !filepath.IsAbs(cfg.Socket) {
		return fmt.Errorf("--cni-socket %q is not an absolute path", cfg.Socket)
	}
	program, changed, err := conflist.InstallProgram(cfg)
	if err != nil {
		return err
	}
	if changed {
		fmt.Fprintln(stdout, "installed", program)
	}
	network, err := conflist.Join(cfg)
	switch {
	case errors.Is(err, conflist.ErrNoNetwork):
		return fmt.Errorf("%w; install the network of the Pods first", err)
	case err != nil:
		return err
	case network.Changed:
		fmt.Fprintln(stdout, "changed", network.File)
	}
	for _, w := range network.Warnings() {
		fmt.Fprintf(stderr, "portolan: warning: %s\n", explain.Plain(w))
	}
	return nil
}

func newCNIUninstall() *cobra.Command {
	var cfg conflist.Config
	var program bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the plugin from the network of this node",
		Long: `Remove the plugin from all network configurations, which are then what they were
before "portolan cni install", and print them, one line each. Stop the agent first:
it installs the plugin again. Policies in the kernel stay; "portolan cleanup" removes
them.

The program itself stays in the directory of CNI plugins: CRI-O ends a Pod with the
plugins with which it was started. With --program it is removed, too.`,
		Example: `  portolan cni uninstall
  portolan cni uninstall --program`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed, err := conflist.Leave(cfg)
			for _, file := range changed {
				fmt.Fprintln(cmd.OutOrStdout(), "restored", file)
			}
			if err != nil || !program {
				return err
			}
			removed, err := conflist.RemoveProgram(cfg)
			if removed != "" {
				fmt.Fprintln(cmd.OutOrStdout(), "removed", removed)
			}
			return err
		},
	}
	addDirectories(cmd, &cfg)
	cmd.Flags().BoolVar(&program, "program", false, "also remove the program from the directory of CNI plugins")
	return cmd
}

func addDirectories(cmd *cobra.Command, cfg *conflist.Config) {
	cmd.Flags().StringVar(
		&cfg.ConfDir, "conf-dir", conflist.DefaultConfDir, "the `DIR` of network configurations of the container runtime",
	)
	cmd.Flags().StringVar(
		&cfg.BinDir,
		"bin-dir",
		conflist.DefaultBinDir,
		"the `DIR` of CNI plugins of the container runtime",
	)
	for _, flag := range []string{"conf-dir", "bin-dir"} {
		_ = cmd.MarkFlagDirname(flag) // fails only for unknown flags
	}
}
