package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/peer"
	proxyapp "portolan.dev/portolan/internal/proxy/app"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/trace"
)

func newTrace() *cobra.Command {
	var flags traceFlags
	cmd := &cobra.Command{
		Use:   "trace [HOST[:PORT]] --from CLIENT",
		Short: "Follow packets of a client through the nftables of this node",
		Long: `Follow the next packets of a client through the nftables of this node: the chains of
portolan proxy and of other programs that each meets, the endpoint that it is sent
to and with which source, or who rejects or drops it.

CLIENT is NAMESPACE/POD, an address, a range of addresses, "node" for the node's own
packets, or "outside" for clients that are neither Pods nor this node. HOST is an
address, SERVICE, SERVICE.NAMESPACE or NAMESPACE/SERVICE; PORT is a number or the name
of a Service's port, and /udp or /sctp follows it for other protocols than TCP. Without
PORT, packets to all ports are followed, and without HOST to all destinations. Of TCP
connections only the first packets are, unless --all is given: rules of Services apply
to these.

It needs the capability NET_ADMIN in the node's network. Its rules are in a table of
its own, which the kernel removes when the process ends, even if it is killed; up to
20 packets a second are followed. The exit status is 1 if there was no packet.`,
		Example: `  portolan trace web.shop:80 --from shop/client
  portolan trace --from 10.244.1.9 --count 0 --for 5m
  portolan trace shop/web --from outside
  kubectl exec -n kube-system portolan-proxy-x7k2q -- /portolan trace web.shop:80 --from node`,
		Args:              arguments(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args) },
	}
	flags.add(cmd)
	return cmd
}

// traceFlags are the flags of trace.
type traceFlags struct {
	source   subjectFlags
	from     string
	count    int
	duration time.Duration
	all      bool
	format   output
}

func (f *traceFlags) add(cmd *cobra.Command) {
	f.source.source.addRead(cmd)
	cmd.Flags().StringVar(&f.from, "from", "", "the `CLIENT`: "+clients)
	cmd.Flags().IntVar(&f.count, "count", 10, "end after `N` packets; 0 has no limit")
	cmd.Flags().DurationVar(&f.duration, "for", 30*time.Second, "end after this `DURATION`; 0 has no limit")
	cmd.Flags().BoolVar(&f.all, "all", false, "follow all packets, not only the first ones of TCP connections")
	f.format.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("from", f.source.completePod)
	for _, flag := range []string{"count", "for"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// check validates the flags, and parses the arguments; target is nil without one.
func (f *traceFlags) check(args []string) (target *connection.Target, err error) {
	switch {
	case f.from == "":
		return nil, errors.New("--from is missing; the client is " + clients)
	case f.count < 0:
		return nil, errors.New("--count is negative")
	case f.duration < 0:
		return nil, errors.New("--for is negative")
	}
	if err := f.format.check(); err != nil || len(args) == 0 {
		return nil, err
	}
	return parseDestination(args[0])
}

// clients are the values of --from.
const clients = "NAMESPACE/POD, an address, a range of addresses, node or outside"

// parseDestination parses HOST or what peer.ParseTarget parses.
func parseDestination(text string) (*connection.Target, error) {
	t, ok, err := peer.ParseTarget(text)
	if ok {
		return &t, err
	}
	t.Host = strings.TrimSuffix(strings.TrimPrefix(peer.Dotted(text), "["), "]")
	if !peer.IsAddress(t.Host) && (t.Host == "" || strings.ContainsAny(t.Host, ":/")) {
		return nil, fmt.Errorf(
			"%q is not SERVICE, NAMESPACE/SERVICE or an address, with a port or without, such as web.shop, "+
				"shop/web:80 or [fd00::1]:80",
			text,
		)
	}
	return &t, nil
}

func (f *traceFlags) run(cmd *cobra.Command, args []string) error {
	target, err := f.check(args)
	if err != nil {
		return err
	}
	cfg, err := f.config(cmd, target)
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	what := "from " + f.from
	if target != nil {
		what += " to " + target.String()
	}
	cfg.Started = func() { fmt.Fprintf(stderr, "portolan: following packets %s\n", what) }
	lost := false
	cfg.Lost = func() { lost = true }
	ctx := cmd.Context()
	if f.duration > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, f.duration)
		defer end()
	}
	n, err := trace.Follow(ctx, cfg, f.printer(cmd.OutOrStdout()))
	if lost {
		fmt.Fprintln(stderr, "portolan: warning: the kernel lost events: some paths are missing or not complete")
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return errCapability
	case err != nil:
		return err
	case n > 0:
		return nil
	}
	fmt.Fprintf(stderr, "portolan: no packet %s arrived at this node%s\n", what, f.hint())
	return errNegative
}

// hint returns why there may have been no packet.
func (f *traceFlags) hint() string {
	if f.all {
		return ""
	}
	return " that opens a connection; --all follows those of open connections, too"
}

// printer returns what prints a Path in the format of the flags.
func (f *traceFlags) printer(out io.Writer) func(*trace.Path) error {
	if f.format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return func(p *trace.Path) error { return encoder.Encode(p) }
	}
	return func(p *trace.Path) error {
		for line := range strings.Lines(p.String()) {
			if _, err := fmt.Fprintln(out, explain.Plain(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
		return nil
	}
}

// config returns what to follow, with names of the cluster. If names are needed for nothing but
// the output, the cluster need not be readable.
func (f *traceFlags) config(cmd *cobra.Command, target *connection.Target) (cfg trace.Config, err error) {
	settings, err := f.source.source.readOnce()
	if err != nil {
		return cfg, err
	}
	compiled, err := settings.Compile()
	if err != nil {
		return cfg, err
	}
	node, err := proxyapp.NodeName(compiled.Proxy.NodeName)
	if err != nil {
		return cfg, err
	}
	cfg = trace.Config{Table: compiled.Proxy.Table.Name, Count: f.count, Packets: nft.TraceConfig{All: f.all}}
	sources, given := parseSources(f.from)
	cfg.Packets.Sources = sources
	outside := f.from == peer.Outside
	served := new(connection.Served)
	l, namespace, unread := f.open(cmd, settings)
	switch named := !given || outside || target != nil && !peer.IsAddress(target.Host); {
	case unread == nil:
		served = l.pods.Served(node)
	case named:
		return cfg, unread
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "portolan: note: Services are not named: %s\n", explain.Plain(unread.Error()))
	}
	if outside {
		if cfg.Packets.Except = l.pods.PodRanges(); len(cfg.Packets.Except) == 0 {
			return cfg, errors.New("--from outside: the ranges of Pods are not known, neither by podCIDRs of Nodes nor by " +
				"proxy.detectLocal.clusterCIDRs; give the client's address or range")
		}
	}
	if !given {
		if cfg.Packets.Sources, namespace, err = f.pod(cmd, l, namespace, node); err != nil {
			return cfg, err
		}
	}
	cfg.Names = trace.Names{Services: served.Services, Pods: served.Pods}
	if target != nil {
		cfg.Packets.To, err = served.Addresses(*target, namespace)
	}
	return cfg, err
}

// open reads the cluster, and returns it with the namespace of names without one.
func (f *traceFlags) open(cmd *cobra.Command, settings config.Config) (*onceCluster, string, error) {
	r, err := f.source.source.reading(settings, source.Whole)
	if err != nil {
		return nil, "", err
	}
	l, err := openCluster(cmd, r)
	if err != nil {
		return nil, "", err
	}
	loaded, err := l.load(cmd.Context())
	if err != nil {
		return nil, "", err
	}
	printLoaded(loaded, cmd.ErrOrStderr())
	return l, r.Fallback[0], nil
}

// pod returns the addresses of the Pod of the flags, and its namespace.
func (f *traceFlags) pod(
	cmd *cobra.Command, l *onceCluster, namespace, node string,
) (sources []netip.Prefix, in string, err error) {
	ref, err := parseReference(f.from)
	if err != nil {
		return nil, "", fmt.Errorf("--from %q is not %s", f.from, clients)
	}
	subject, err := l.pods.Subject(ref.In(namespace))
	switch {
	case err != nil:
		return nil, "", err
	case subject.Pod == nil || len(subject.Pod.IPs) == 0:
		return nil, "", fmt.Errorf("%s has no address; name a Pod that runs", &subject)
	case subject.Pod.Node != "" && subject.Pod.Node != node:
		fmt.Fprintf(cmd.ErrOrStderr(), "portolan: warning: %s is on node %s, and this is node %s: its packets are there\n",
			&subject, subject.Pod.Node, node)
	}
	for _, a := range subject.Pod.IPs {
		sources = append(sources, netip.PrefixFrom(a, a.BitLen()))
	}
	return sources, subject.Namespace, nil
}

// parseSources parses the values of --from that are no Pods, and reports whether text is one. The
// node's own packets have no source.
func parseSources(text string) (sources []netip.Prefix, ok bool) {
	switch text {
	case "node":
		return nil, true
	case peer.Outside:
		return []netip.Prefix{
			netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0),
		}, true
	}
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap()
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, true
	}
	p, err := netip.ParsePrefix(text)
	return []netip.Prefix{p.Masked()}, err == nil
}
