package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/migrate"
	"portolan.dev/portolan/internal/migrate/corefile"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/deadline"
)

func newServe() *cobra.Command {
	var flags serveFlags
	var check bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve cluster DNS",
		Long: `Serve the names of a cluster over DNS, on UDP and TCP, until SIGTERM or SIGINT.

The cluster is read from the Kubernetes API or from manifests. Changes take
effect immediately. An object that cannot be read affects only its own names, and
its last valid version stays in use.

The configuration file is reloaded when it changes and on SIGHUP; an invalid file
leaves the current configuration in force. With --corefile the file is a CoreDNS
Corefile: directives without a counterpart are logged, and "portolan config
from-corefile" lists them beforehand.

With --check nothing is served: the configuration, the files of local zones and the
manifests are checked, each problem is printed on one line, and the exit status is 1
if there is any.`,
		Example: `  portolan serve --manifests examples/shop --listen 127.0.0.1:1053
  dig @127.0.0.1 -p 1053 web.shop.svc.cluster.local
  portolan serve --kubeconfig ~/.kube/config --snapshot /var/lib/portolan/snapshot`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if check {
				return checkServe(cmd, c)
			}
			return serve(cmd, c, &flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and the manifests, then exit")
	return cmd
}

// serveFlags are the flags of serve; they override the configuration.
type serveFlags struct {
	sourceFlags
	listen   []string
	admin    string
	snapshot string
	corefile string

	// Set by CoreDNS' flags.
	port      string // of server blocks without a port
	logFormat string
	quiet     bool
	stdin     []byte // the Corefile, if it was read from standard input

	notes       []migrate.Note // of the last read of the Corefile
	translation deadline.Call[*migrate.Translation]
}

func (f *serveFlags) add(cmd *cobra.Command) {
	f.sourceFlags.add(cmd)
	cmd.Flags().StringArrayVar(
		&f.listen, "listen", nil, "serve UDP and TCP on `ADDR:PORT`, repeatable (default 127.0.0.1:1053)",
	)
	cmd.Flags().StringVar(
		&f.admin, "admin", "",
		"serve health, metrics and dumps over HTTP on `ADDR:PORT`; empty disables it (default 127.0.0.1:9153)",
	)
	cmd.Flags().StringVar(&f.snapshot, "snapshot", "", "save the cluster to this `FILE`, and start from it")
	cmd.Flags().StringVar(
		&f.corefile, "corefile", "", "read the configuration from this CoreDNS Corefile `FILE`; flags override it",
	)
	_ = cmd.MarkFlagFilename("corefile")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
	_ = cmd.MarkFlagFilename("snapshot")
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *serveFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.base()
	if len(f.listen) > 0 {
		c.DNS.Listen = f.listen
	}
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	if f.snapshot != "" {
		c.Snapshot.File = f.snapshot
	}
	return c, err
}

// base returns the configuration without the flags that only serve has.
func (f *serveFlags) base() (config.Config, error) {
	if f.corefile == "" {
		return f.sourceFlags.read()
	}
	if f.config != "" {
		return config.Config{}, exclusive("config", "corefile")
	}
	if err := f.check(); err != nil {
		return config.Config{}, err
	}
	t, err := f.translation.Do(context.Background(), deadline.File, "corefile: read "+f.corefile, f.translate)
	if err != nil {
		return config.Config{}, err
	}
	c := t.Config
	f.notes = t.Notes
	f.override(&c)
	if f.logFormat != "" {
		c.Log.Format = f.logFormat
	}
	if f.quiet && c.DNS.QueryLog.OneIn == 0 { // -quiet does not suppress the query log
		c.Log.Level = "warn"
	}
	return c, nil
}

// translate reads the Corefile, with the files that it imports.
func (f *serveFlags) translate() (*migrate.Translation, error) {
	data, err := f.corefileText()
	if err != nil {
		return nil, fmt.Errorf("corefile: %w", err)
	}
	return corefile.Parse(
		f.corefile, data, corefile.Options{Port: f.port, IPv4Only: !hasIPv6(), InterfaceAddrs: interfaceAddrs},
	)
}

// corefileText returns the current content of the Corefile.
func (f *serveFlags) corefileText() ([]byte, error) {
	if f.stdin != nil {
		return f.stdin, nil
	}
	return deadline.ReadFile(f.corefile, deadline.File, deadline.Small)
}

// interfaceAddrs returns the addresses of a network interface of this host.
func interfaceAddrs(name string) (addrs []netip.Addr, err error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue // not an IP address
		}
		addr := prefix.Addr().Unmap()
		if addr.Is6() && addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(name)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// hasIPv6 reports whether the host can listen on IPv6 addresses.
func hasIPv6() bool {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp6", "[::]:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// content returns the content of the files that the configuration is read from.
func (f *serveFlags) content() ([]byte, error) {
	if f.corefile != "" {
		data, err := f.corefileText()
		if err != nil {
			return nil, err
		}
		return corefile.Content(f.corefile, data)
	}
	return f.sourceFlags.content()
}

// notices logs the notes on a translated file whenever they change.
type notices struct {
	what   string // the kind of file
	log    *slog.Logger
	logged []migrate.Note
}

func (n *notices) tell(notes []migrate.Note) {
	if slices.Equal(notes, n.logged) {
		return
	}
	n.logged = notes
	for _, note := range notes {
		say := n.log.Warn
		if note.Kind == migrate.Done {
			say = n.log.Info
		}
		say(
			n.what+": "+note.Text, "file", note.File, "line", note.Line, "directive", note.Directive, "kind",
			note.Kind.String(),
		)
	}
}

func serve(cmd *cobra.Command, c config.Config, flags *serveFlags) error {
	noted := notices{what: "corefile"}
	p := process{
		assemble: func(a assembly) (*daemon.Config, error) {
			cfg, err := a.serve()
			if err == nil {
				noted.log = a.log
				noted.tell(flags.notes)
			}
			return cfg, err
		},
		follow: &config.Follower{Text: flags.text, Read: flags.content, Parse: func(text []byte) (config.Config, error) {
			flags.text = text
			c, err := flags.read(cmd)
			if err == nil {
				noted.tell(flags.notes)
			}
			return c, err
		}},
	}
	if flags.corefile != "" {
		p.signals = coreDNSReload
		text, err := new(deadline.Call[[]byte]).Do(cmd.Context(), deadline.File, "read "+flags.corefile, flags.content)
		if err != nil {
			return fmt.Errorf("corefile: %w", err)
		}
		p.follow.Text = text
	}
	return p.run(cmd, c)
}

// checkServe prints every problem and returns errNegative if there is any.
func checkServe(cmd *cobra.Command, c config.Config) error {
	l, err := openCluster(cmd, source.Config{Settings: c, Scope: source.Names})
	if err != nil {
		return err
	}
	if err := l.dns.CheckFiles(); err != nil {
		return err
	}
	if err := l.source.CheckAccess(); err != nil {
		return err
	}
	for _, w := range l.dns.ZoneWarnings() {
		fmt.Fprintf(cmd.ErrOrStderr(), "portolan: warning: %s\n", explain.Plain(w))
	}
	zones := l.dns.ZoneProblems()
	for _, p := range zones {
		fmt.Fprintf(cmd.ErrOrStderr(), "portolan: %s\n", explain.Plain(p.Error()))
	}
	if c.Manifests == "" && len(zones) > 0 {
		return errNegative
	}
	if c.Manifests == "" {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok: the configuration is valid; there are no manifests to check")
		return err
	}
	report, err := l.load(cmd.Context())
	if err != nil {
		return err
	}
	printLoaded(report, cmd.ErrOrStderr())
	if len(report.Problems)+len(zones) > 0 {
		return errNegative
	}
	_, err = fmt.Fprintf(
		cmd.OutOrStdout(), "ok: %d objects, %d documents of other kinds\n", report.Objects, report.PassedOver,
	)
	return err
}

// newLogger returns a logger as configured. Its level follows the given LevelVar.
func newLogger(c config.Log, level *slog.LevelVar, w io.Writer) *slog.Logger {
	var first slog.Level
	_ = first.UnmarshalText([]byte(c.Level)) // validated with the configuration
	level.Set(first)
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		options.ReplaceAttr = inWords
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// inWords logs a value with a String method as that string, as the text handler
// does. The JSON handler would write its fields.
func inWords(_ []string, a slog.Attr) slog.Attr {
	if value, is := a.Value.Any().(fmt.Stringer); is && a.Value.Kind() == slog.KindAny {
		a.Value = slog.StringValue(value.String())
	}
	return a
}
