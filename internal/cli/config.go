package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/migrate"
	"portolan.dev/portolan/internal/migrate/corefile"
	"portolan.dev/portolan/internal/migrate/kubeproxy"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Describe configuration keys; translate other servers' settings",
		Long: `Describe the keys of the configuration file, or translate the settings of other
servers into one.`,
		Example: `  portolan config explain dns.udpSize
  portolan config from-corefile Corefile > portolan.yaml`,
	}
	group(cmd)
	cmd.AddCommand(newConfigExplain(), newConfigSchema(), newFromCorefile(), newFromKubeDNS(), newFromKubeProxy())
	return cmd
}

func newFromCorefile() *cobra.Command {
	return newTranslate(&cobra.Command{
		Use:   "from-corefile FILE",
		Short: "Translate CoreDNS' Corefile",
		Long: `Translate a CoreDNS Corefile into a configuration file with the keys that differ
from the defaults. Each directive that is not translated, or only in part, is
reported on standard error: FILE:LINE: DIRECTIVE: REASON. FILE may be - for
standard input. The exit status is 1 if something has no counterpart.`,
		Example: `  kubectl -n kube-system get configmap coredns -o jsonpath='{.data.Corefile}' > Corefile
  portolan config from-corefile Corefile > portolan.yaml`,
	}, "corefile", func(path string, data []byte) (*migrate.Translation, error) {
		return corefile.Parse(path, data, corefile.Options{})
	})
}

func newFromKubeDNS() *cobra.Command {
	return newTranslate(&cobra.Command{
		Use:   "from-kube-dns FILE",
		Short: "Translate the ConfigMap of kube-dns",
		Long: `Translate a manifest of the ConfigMap kube-dns into a configuration file with the
keys that differ from the defaults. Each entry that is not translated is reported
on standard error. FILE may be - for standard input. The exit status is 1 if
something has no counterpart.`,
		Example: `  kubectl -n kube-system get configmap kube-dns -o yaml > kube-dns.yaml
  portolan config from-kube-dns kube-dns.yaml > portolan.yaml`,
	}, "config map", corefile.ParseKubeDNS)
}

func newFromKubeProxy() *cobra.Command {
	return newTranslate(&cobra.Command{
		Use:   "from-kube-proxy FILE",
		Short: "Translate kube-proxy's configuration file",
		Long: `Translate a KubeProxyConfiguration into a configuration file with the keys that
differ from the defaults. Each field that has no effect, or another one, is reported
on standard error. FILE may be - for standard input. The exit status is 1 if
something has no counterpart. "portolan proxy --config" also takes the file itself.`,
		Example: `  kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.data.config\.conf}' |
    portolan config from-kube-proxy - > portolan.yaml`,
	}, "config", kubeproxy.Parse)
}

// newTranslate makes cmd a command that prints the translation of a file. what is the
// kind of file in errors.
func newTranslate(
	cmd *cobra.Command, what string, parse func(path string, data []byte) (*migrate.Translation, error),
) *cobra.Command {
	var format output
	cmd.Args = arguments(1, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := format.check(); err != nil {
			return err
		}
		path, data, err := readInput(cmd, args[0])
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		t, err := parse(path, data)
		if err != nil {
			return err
		}
		return printTranslation(cmd, t, format)
	}
	format.add(cmd)
	return cmd
}

// readInput reads a file, or standard input for "-", and returns its name for messages.
func readInput(cmd *cobra.Command, path string) (name string, data []byte, err error) {
	if path == "-" {
		data, err = readStdin(cmd)
		return "stdin", data, err
	}
	data, err = os.ReadFile(path)
	return path, data, err
}

// readStdin reads a Corefile or ConfigMap from standard input.
func readStdin(cmd *cobra.Command) ([]byte, error) {
	return io.ReadAll(io.LimitReader(cmd.InOrStdin(), corefile.MaxOctets+1)) // more than MaxOctets is an error
}

func printTranslation(cmd *cobra.Command, t *migrate.Translation, format output) error {
	text, err := t.Text()
	if err != nil {
		return err
	}
	if format == "json" {
		made := struct {
			Config map[string]any `json:"config"`
			Notes  []migrate.Note `json:"notes"`
		}{Config: make(map[string]any), Notes: append([]migrate.Note{}, t.Notes...)}
		if err := yaml.Unmarshal(text, &made.Config); err != nil {
			return err
		}
		err = printJSON(cmd.OutOrStdout(), made)
	} else {
		for _, n := range t.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), n)
		}
		_, err = cmd.OutOrStdout().Write(text)
	}
	if err == nil && !t.Complete() {
		return errNegative
	}
	return err
}
