package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/peer"
)

func newExplain() *cobra.Command {
	var flags explainFlags
	cmd := &cobra.Command{
		Use:   "explain NAME[:PORT] --from NAMESPACE/POD | NAMESPACE/POD --to TARGET:PORT | URL",
		Short: "Explain how a name resolves in a Pod, what policies allow, and who serves a URL",
		Long: `Explain how a name resolves in a Pod: each query that the Pod's resolver sends,
with its answer, where the resolver stops and why, and how many packets it takes.
The last line says why the name does not resolve, or takes many packets, and the
cure.

NAMESPACE/POD names a Pod, or a Deployment, StatefulSet, DaemonSet, Job or CronJob
whose Pods are meant: shop/web-0, shop/web, or shop/deployment/web. With
--filename, the Pod or workload is read from that file. NAME is what a program in the
Pod passes to its resolver.

Answers are computed from the cluster, as the server computes them.

With --live, each layer is compared with reality: this command looks the name up,
connects to the address and to its endpoints, makes the TLS handshake and sends the
request, as root on the Pod's node from the Pod's network namespace. Elsewhere it
says which layers are not compared and why, and queries the servers in the Pod's
resolv.conf, or --server, from where it runs. Where reality differs from the model,
that comes first, and the exit status is that of the layer.

With a port, as in web.shop:80, 10.96.0.10:53/udp or [fd00::1]:80, the explanation
goes on with the connection: which Service has the address, which endpoints the
node's service proxy uses and why not the others, and whether NetworkPolicies allow
it. The client is a Pod, the node (--from node), or a client outside the cluster
(--from outside, or its address). With --kernel, on a node with portolan proxy, it
also says what the kernel has for the address.

With --to, the argument is the client, and the question whether policies allow it
to connect: NetworkPolicies and ClusterNetworkPolicies of the client and of the
destination, after the service proxy translated its address. TARGET is a Pod or
workload (shop/db-0, shop/deployment/db), a Service (svc/shop/db), a name that the
Pod looks up, or an address; PORT is a number or a name, followed by /udp or /sctp
for other protocols than TCP. The output has the rule that decides in each direction
or the nearest one that would allow it, and the cure. On the Pod's node it also says
whether the rules in the kernel agree; with --kernel, why they were not read.

With a URL, the question is which Ingress or HTTPRoute serves an HTTP request: the
listener, the host, each rule and why it does not match, and the backend with its
endpoints; or why the gateway answers 404, 500 or 503 itself, and the cure. --method
and --header complete the request. With --from, the host is looked up in that Pod,
and its address compared with those of the Gateways. Nothing is sent.

The exit status is that of the first layer that is broken or, with --live, that
differs from the model:

   0  the client gets what it asks for
   1  not known; with --to, the connection is denied or fails
   2  wrong usage, or the cluster could not be read
  10  name: it does not resolve
  11  service: nothing serves the address, Services share it, or the kernel differs
  12  policy: policies deny the connection
  13  tls: the certificate is not for the host, or not valid
  14  route: no listener or route takes the request
  15  backend: no endpoint gets the request`,
		Example: `  portolan explain web.shop --from shop/web --manifests examples/shop
  portolan explain db --from default/job/backup --libc musl --live
  portolan explain web.shop:80 --from shop/web --manifests examples/shop
  portolan explain 203.0.113.1:80 --from 198.51.100.7 --node node-1
  portolan explain web.shop:80 --from node --kernel
  portolan explain shop/web --to data/postgres-0:5432 --manifests examples/shop
  portolan explain shop/web --to api.example.com:443/tcp
  portolan explain http://shop.example.com/cart --method POST --header 'X-Env: test'`,
		Args:              arguments(1, 1),
		ValidArgsFunction: flags.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("admin") {
				return flags.askServer(cmd, args[0])
			}
			if flags.admin != (adminFlags{}) {
				return errors.New("--admin-token-file, --admin-ca, --admin-cert and --admin-key go with --admin")
			}
			if peer.IsURL(args[0]) && flags.to == "" {
				return flags.request(cmd, args[0])
			}
			for _, flag := range []string{"method", "header"} {
				if cmd.Flags().Changed(flag) {
					return fmt.Errorf("--%s goes with a URL, such as http://shop.example.com/", flag)
				}
			}
			if flags.to != "" {
				return flags.verdict(cmd, args[0])
			}
			if t, ok, err := peer.ParseTarget(args[0]); err != nil {
				return err
			} else if ok {
				return flags.connect(cmd, t)
			}
			if _, elsewhere := peer.ParseClient(flags.from, flags.onNode); elsewhere {
				return errNameOnly
			}
			e, err := flags.explain(cmd, args[0])
			if err != nil {
				return err
			}
			return flags.print(cmd, e)
		},
	}
	flags.add(cmd)
	return cmd
}

type explainFlags struct {
	pod     podFlags
	from    string
	to      string
	onNode  string
	kernel  bool
	rrtype  string
	libc    string
	live    bool
	tcp     bool
	server  string
	netns   string
	wait    time.Duration
	send    bool
	method  string     // of a URL
	headers []string   // of a URL
	admin   adminFlags // of a server that explains
	color   colorFlag
	format  output
}

// methods are those that an HTTPRoute can match.
var methods = []cobra.Completion{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}

var libcs = []cobra.Completion{"glibc", "musl", "windows", "go"}

func (f *explainFlags) add(cmd *cobra.Command) {
	f.pod.add(cmd)
	cmd.Flags().StringVar(&f.from, "from", "", "resolve as a program in `NAMESPACE/POD` does")
	cmd.Flags().StringVar(
		&f.to, "to", "", "whether policies allow connections to this `TARGET`; the argument is the client",
	)
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.NoFileCompletions)
	cmd.Flags().StringVar(
		&f.onNode,
		"node",
		"",
		"the client is on the node `NAME`, or its packets arrive there (default: the Pod's, or the only one)",
	)
	_ = cmd.RegisterFlagCompletionFunc("node", cobra.NoFileCompletions)
	cmd.Flags().BoolVar(
		&f.kernel, "kernel", false, "also compare with what the kernel has; the default of --node is the node of the command",
	)
	cmd.Flags().StringVar(
		&f.rrtype, "type", "", "query this `TYPE` only (default A and AAAA, as most programs do)",
	)
	cmd.Flags().StringVar(&f.libc, "libc", "glibc", "resolve as `LIBC` does: glibc, musl, windows, or go")
	cmd.Flags().BoolVar(&f.live, "live", false, "send what the client would send, and compare it with the model")
	cmd.Flags().StringVar(&f.netns, "netns", "",
		"with --live, the client's network namespace is this `FILE` (default: it is found by the Pod's address)")
	cmd.Flags().DurationVar(&f.wait, "wait", 0,
		"with --live, wait this long for each answer (default 3s, and 5s for a query)")
	cmd.Flags().BoolVar(&f.send, "send", false,
		"with --live and a URL, send requests that may change something: POST, PUT, PATCH, DELETE and the like")
	cmd.Flags().StringVar(&f.server, "server", "", "with --live, query the server at `ADDR:PORT` instead")
	cmd.Flags().BoolVar(&f.tcp, "tcp", false, "with --live, query over TCP, for kubectl port-forward")
	cmd.Flags().StringVar(&f.method, "method", http.MethodGet, "the `METHOD` of the request, with a URL")
	cmd.Flags().StringArrayVar(
		&f.headers,
		"header",
		nil,
		"a header of the request as `'NAME: VALUE'`, with a URL; repeatable",
	)
	_ = cmd.RegisterFlagCompletionFunc("method", cobra.FixedCompletions(methods, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("header", cobra.NoFileCompletions)
	cmd.Flags().StringVar(
		&f.admin.at, "admin", "", "have the running server at the admin address `ADDR:PORT` explain, from what it has read",
	)
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
	f.admin.addAccess(cmd)
	f.color.add(cmd)
	f.format.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("from", f.pod.completePod)
	_ = cmd.RegisterFlagCompletionFunc("server", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("wait", cobra.NoFileCompletions)
	_ = cmd.MarkFlagFilename("netns")
	_ = cmd.RegisterFlagCompletionFunc("libc", cobra.FixedCompletions(libcs, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc(
		"type",
		cobra.FixedCompletions([]cobra.Completion{"A", "AAAA", "SRV", "PTR", "TXT"}, cobra.ShellCompDirectiveNoFileComp),
	)
}

// explain returns the explanation for a name and the flags.
func (f *explainFlags) explain(cmd *cobra.Command, name string) (*path.Explanation, error) {
	q, err := f.question(name)
	if err != nil {
		return nil, err
	}
	switch {
	case f.onNode != "":
		return nil, errors.New("--node goes with NAME:PORT")
	case f.kernel:
		return nil, errors.New("--kernel goes with NAME:PORT")
	}
	ref, err := f.reference(cmd)
	if err != nil {
		return nil, err
	}
	c, err := f.pod.read(cmd, ref)
	if err != nil {
		return nil, err
	}
	c.cluster.warnOfZones(cmd.ErrOrStderr())
	q.Subject, q.Node = c.subject, c.node
	if !f.live {
		return path.OfName(c.pods.Explain(cmd.Context(), q)), nil
	}
	how, err := f.packets(cmd.Context())
	if err != nil {
		return nil, err
	}
	return c.pods.LiveName(cmd.Context(), q, how)
}

// packets returns how packets are sent.
func (f *explainFlags) packets(ctx context.Context) (p podapp.Packets, err error) {
	p = podapp.Packets{NetNS: f.netns, Unsafe: f.send}
	p.TCP, p.Wait = f.tcp, f.wait
	if f.server != "" {
		p.Server, err = serverAddr(ctx, f.server)
	}
	return p, err
}

// question returns the Question, without what has to be read from the cluster.
func (f *explainFlags) question(name string) (q podapp.Question, err error) {
	if err := f.format.check(); err != nil {
		return q, err
	}
	if err := f.color.check(); err != nil {
		return q, err
	}
	if name == "" {
		return q, errors.New("NAME is empty")
	}
	if f.from == "" && f.pod.file == "" {
		return q, errors.New("--from is missing; name the Pod, such as --from shop/web-0, or write node or outside")
	}
	if q, err = podapp.NewQuestion(name, f.libc, f.rrtype); err != nil {
		return q, fmt.Errorf("--%w", err) // which begins with the name of the flag
	}
	return q, f.checkLive()
}

// checkLive validates the flags of packets.
func (f *explainFlags) checkLive() error {
	switch {
	case f.live && f.wait < 0:
		return errors.New("--wait is less than 0")
	case f.live:
		return nil
	case f.server != "" || f.tcp:
		return errors.New("--server and --tcp go with --live")
	case f.netns != "" || f.wait != 0 || f.send:
		return errors.New("--netns, --wait and --send go with --live")
	}
	return nil
}

// serverAddr parses the address or host name of a server, with or without a port.
func serverAddr(ctx context.Context, text string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, dnsPort), nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, strconv.Itoa(dnsPort)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--server: %q is not an address and a port, such as 127.0.0.1:1053", text)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--server: %w", err)
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(number)), nil
}

const dnsPort = 53

// style returns the style for the terminal that stdout is. COLUMNS sets the width if
// stdout is not a terminal.
func (f *explainFlags) style(cmd *cobra.Command) explain.Style {
	style := explain.Style{Color: f.color.on(cmd)}
	if out, ok := cmd.OutOrStdout().(*os.File); ok {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil {
			style.Width = width
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		style.Width = columns
	}
	return style
}
