package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/migrate/corefile"
)

func newServe() *cobra.Command {
	var flags serveFlags
	var check bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a cluster's names over DNS",
		Long: `Serve a cluster's names over DNS, on UDP and TCP, until it is told to stop.

The cluster is read from the Kubernetes API, or from manifests, and followed: a
change shows in answers at once. An object that can't be read costs that object,
and its last good version stays.

The configuration file is read again when it changes, and at SIGHUP; a bad one
leaves the one before. With --corefile, it is CoreDNS' Corefile: what of it has
no counterpart is logged; "portolan config from-corefile" tells it beforehand.

With --check, nothing is served: the problems of the manifests are printed, one
line each, and the status is 1 when there are any.`,
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
	cmd.Flags().BoolVar(&check, "check", false, "check the settings and the manifests, and end")
	return cmd
}

// serveFlags are the flags that override the configuration.
type serveFlags struct {
	sourceFlags
	listen   []string
	admin    string
	snapshot string
	corefile string

	// As CoreDNS is called.
	port      string // of server blocks that name none
	logFormat string
	quiet     bool
	stdin     []byte // the Corefile, when it was read from there

	notes []corefile.Note // on the Corefile, when it was last read
}

func (f *serveFlags) add(cmd *cobra.Command) {
	f.sourceFlags.add(cmd)
	cmd.Flags().StringArrayVar(&f.listen, "listen", nil, "serve UDP and TCP on `ADDR:PORT`, repeatable (default 127.0.0.1:1053)")
	cmd.Flags().StringVar(&f.admin, "admin", "", "serve health, metrics and dumps over HTTP on `ADDR:PORT`, or on none when empty (default 127.0.0.1:9153)")
	cmd.Flags().StringVar(&f.snapshot, "snapshot", "", "keep the cluster in this `FILE`, and begin with it")
	cmd.Flags().StringVar(&f.corefile, "corefile", "", "read the settings in this `FILE`, CoreDNS' Corefile; flags override it")
	_ = cmd.MarkFlagFilename("corefile")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
	_ = cmd.MarkFlagFilename("snapshot")
}

// read is the configuration that the flags make.
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

// base is the configuration without the flags that only serve has.
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
	data, err := f.corefileText()
	if err != nil {
		return config.Config{}, fmt.Errorf("corefile: %w", err)
	}
	t, err := corefile.Parse(f.corefile, data, corefile.Options{Port: f.port, IPv4Only: !hasIPv6(), InterfaceAddrs: interfaceAddrs})
	if err != nil {
		return config.Config{}, err
	}
	c := t.Config
	f.notes = t.Notes
	f.override(&c)
	if f.logFormat != "" {
		c.Log.Format = f.logFormat
	}
	if f.quiet && c.DNS.QueryLog.OneIn == 0 { // lines of queries are wanted all the same
		c.Log.Level = "warn"
	}
	return c, nil
}

// corefileText is the Corefile as it is now.
func (f *serveFlags) corefileText() ([]byte, error) {
	if f.stdin != nil {
		return f.stdin, nil
	}
	return os.ReadFile(f.corefile)
}

// interfaceAddrs are the addresses of a network interface of this host.
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
			continue // of another kind
		}
		addr := prefix.Addr().Unmap()
		if addr.Is6() && addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(name)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// hasIPv6 tells whether the host can listen on IPv6 addresses.
func hasIPv6() bool {
	l, err := net.Listen("tcp6", "[::]:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// content is the text of the files that the configuration is read from.
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

// notices logs notes on a Corefile, each set of them once.
type notices struct {
	log    *slog.Logger
	logged []corefile.Note
}

func (n *notices) tell(notes []corefile.Note) {
	if slices.Equal(notes, n.logged) {
		return
	}
	n.logged = notes
	for _, note := range notes {
		say := n.log.Warn
		if note.Kind == corefile.Done {
			say = n.log.Info
		}
		say("corefile: "+note.Text, "file", note.File, "line", note.Line, "directive", note.Directive, "kind", note.Kind.String())
	}
}

func serve(cmd *cobra.Command, c config.Config, flags *serveFlags) error {
	var noted notices
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
		var err error
		if p.follow.Text, err = flags.content(); err != nil {
			return fmt.Errorf("corefile: %w", err)
		}
	}
	return p.run(cmd, c)
}

// checkServe reports every problem; with any, the status is negative.
func checkServe(cmd *cobra.Command, c config.Config) error {
	l, err := openCluster(cmd, c, source.Names)
	if err != nil {
		return err
	}
	if err := l.dns.CheckFiles(); err != nil {
		return err
	}
	if err := l.source.CheckAccess(); err != nil {
		return err
	}
	if c.Manifests == "" {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok: the settings; there are no manifests to check")
		return err
	}
	report, err := l.load(cmd.Context())
	if err != nil {
		return err
	}
	printLoaded(report, cmd.ErrOrStderr())
	if len(report.Problems) > 0 {
		return errNegative
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %d objects, %d documents of other kinds\n", report.Objects, report.PassedOver)
	return err
}

// newLogger makes a logger as configured; level can be changed later.
func newLogger(c config.Log, level *slog.LevelVar, w io.Writer) *slog.Logger {
	var first slog.Level
	_ = first.UnmarshalText([]byte(c.Level)) // checked with the configuration
	level.Set(first)
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		options.ReplaceAttr = inWords
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// inWords gives what has words of its own in these, as text has it. JSON would take
// its fields apart, or have none to show.
func inWords(_ []string, a slog.Attr) slog.Attr {
	if value, is := a.Value.Any().(fmt.Stringer); is && a.Value.Kind() == slog.KindAny {
		a.Value = slog.StringValue(value.String())
	}
	return a
}
