package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/migrate/corefile"
)

// coreDNSFlags are the flags of CoreDNS, which has no commands and whose flags begin
// with a single dash.
var coreDNSFlags = []string{"conf", "dns.port", "log-format", "p", "pidfile", "plugins", "quiet", "version"}

// isCoreDNS reports whether the arguments are CoreDNS' flags, as in a Deployment of
// CoreDNS whose image was replaced.
func isCoreDNS(args []string) bool {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return false
	}
	name, _, _ := strings.Cut(args[0][1:], "=")
	return slices.Contains(coreDNSFlags, name)
}

// newCoreDNS returns the command that accepts CoreDNS' flags.
func newCoreDNS() *cobra.Command {
	return &cobra.Command{
		Use:                "portolan",
		DisableFlagParsing: true,
		SilenceErrors:      true,
		SilenceUsage:       true,
		RunE: func(cmd *cobra.Command, args []string) error {
			called, err := parseCoreDNS(args)
			switch {
			case err != nil:
				return err
			case called.version:
				return printVersion(cmd)
			case called.plugins:
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(corefile.Plugins(), "\n"))
				return err
			}
			return called.serve(cmd)
		},
	}
}

// coreDNSCall holds the values of CoreDNS' flags.
type coreDNSCall struct {
	serveFlags
	pidFile          string
	version, plugins bool
}

func parseCoreDNS(args []string) (*coreDNSCall, error) {
	var c coreDNSCall
	logFormat := ""
	flags := flag.NewFlagSet("portolan", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.corefile, "conf", "Corefile", "")
	flags.StringVar(&c.port, "dns.port", "", "")
	flags.StringVar(&c.port, "p", "", "")
	flags.StringVar(&c.pidFile, "pidfile", "", "")
	flags.StringVar(&logFormat, "log-format", "text", "")
	flags.BoolVar(&c.quiet, "quiet", false, "")
	flags.BoolVar(&c.plugins, "plugins", false, "")
	flags.BoolVar(&c.version, "version", false, "")
	switch err := flags.Parse(args); {
	case err != nil:
		return nil, fmt.Errorf("%w; CoreDNS' flags are -%s", err, strings.Join(coreDNSFlags, ", -"))
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q; CoreDNS' flags take no command", flags.Arg(0))
	case logFormat != "text" && logFormat != "json":
		return nil, fmt.Errorf("log format %q is not text or json", logFormat)
	}
	c.logFormat = logFormat
	return &c, nil
}

// serve runs the command serve.
func (c *coreDNSCall) serve(cmd *cobra.Command) error {
	if c.corefile == "stdin" {
		text, err := readStdin(cmd)
		if err != nil {
			return fmt.Errorf("corefile: %w", err)
		}
		c.stdin = text
	}
	cfg, err := c.read(cmd)
	if err != nil {
		return err
	}
	if c.pidFile != "" {
		if err := os.WriteFile(c.pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return fmt.Errorf("pid file: %w", err)
		}
		defer os.Remove(c.pidFile)
	}
	return serve(cmd, cfg, &c.serveFlags)
}
