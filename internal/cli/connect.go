package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// parseTarget parses HOST:PORT or HOST:PORT/PROTOCOL, of which HOST may be NAMESPACE/SERVICE, and
// reports whether text has that form; other texts are names to resolve.
func parseTarget(text string) (t connection.Target, ok bool, err error) {
	if lacksPort(text) {
		return t, true, fmt.Errorf("%q has no port, which a protocol needs, as in ADDRESS:PORT/udp", text)
	}
	rest, protocol, _ := strings.Cut(dotted(text), "/")
	if strings.Count(rest, ":") != 1 && !strings.HasPrefix(rest, "[") || strings.Contains(text, "//") {
		return t, false, nil // a name, an IPv6 address or a URL
	}
	t.Protocol = frontend.TCP
	if t.Host, t.Port, err = net.SplitHostPort(rest); err != nil || t.Host == "" || t.Port == "" {
		return t, true, fmt.Errorf("%q is not HOST:PORT, such as web.shop:80 or [fd00::1]:80", text)
	}
	if isNoPort(t.Port) {
		return t, true, fmt.Errorf("port %s is not from 1 to 65535", t.Port)
	}
	switch strings.ToLower(protocol) {
	case "", "tcp":
	case "udp":
		t.Protocol = frontend.UDP
	case "sctp":
		t.Protocol = frontend.SCTP
	default:
		return t, true, fmt.Errorf("protocol %q is not tcp, udp or sctp", protocol)
	}
	return t, true, nil
}

// isNoPort reports whether text is a number, but not one of a port.
func isNoPort(text string) bool {
	if strings.Trim(text, "0123456789") != "" {
		return false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return err != nil || n == 0
}

// lacksPort reports whether text is a host and a protocol without a port. NAMESPACE/udp is such a text:
// a Service with the name of a protocol is written as udp.NAMESPACE.
func lacksPort(text string) bool {
	if strings.Contains(text, "//") {
		return false // a URL
	}
	host, _, slash := strings.Cut(text, "/")
	if slash && isAddress(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")) {
		return true
	}
	end := strings.LastIndex(text, "/")
	if end < 0 || strings.Contains(text[:end], ":") {
		return false
	}
	switch strings.ToLower(text[end+1:]) {
	case "tcp", "udp", "sctp":
		return true
	}
	return false
}

// dotted returns a text that begins with NAMESPACE/SERVICE with SERVICE.NAMESPACE instead.
func dotted(text string) string {
	namespace, rest, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || strings.ContainsAny(namespace, ":[") {
		return text
	}
	end := strings.IndexAny(rest+":", ":/")
	return rest[:end] + "." + namespace + rest[end:]
}

// parseClient parses the values of --from that are no Pods, and reports whether text is one:
// node, outside, and addresses of clients outside.
func (f *explainFlags) parseClient(text string) (c connection.Client, ok bool) {
	c.Node = f.onNode
	switch addr, err := netip.ParseAddr(text); {
	case err == nil:
		c.Place, c.Addr = connection.Outside, addr.Unmap()
	case text == fromOutside:
		c.Place = connection.Outside
	case text == "node":
		c.Place = connection.OnNode
	default:
		return c, false
	}
	return c, true
}

// connect prints what a client sees that connects to a target.
func (f *explainFlags) connect(cmd *cobra.Command, t connection.Target) error {
	e, err := f.evaluate(cmd, peer{Target: t})
	if err != nil {
		return err
	}
	return f.print(cmd, e)
}

// print prints how the layers of a way are. The error is that of the first that is not OK.
func (f *explainFlags) print(cmd *cobra.Command, e *path.Explanation) (err error) {
	if f.format == "json" {
		err = printJSON(cmd.OutOrStdout(), e)
	} else {
		err = e.WriteText(cmd.OutOrStdout(), f.style(cmd))
	}
	switch {
	case err != nil:
		return err
	case e.State == path.Broken:
		return brokenError(e.Cause)
	case e.State == path.NotKnown:
		return errNegative
	}
	return nil
}

// verdict prints whether policies allow a client to connect to the value of --to.
func (f *explainFlags) verdict(cmd *cobra.Command, client string) error {
	if cmd.Flags().Changed("from") {
		return exclusive("from", "to")
	}
	f.from = client
	to, err := parsePeer(f.to)
	if err != nil {
		return err
	}
	e, err := f.evaluate(cmd, to)
	switch {
	case err != nil:
		return err
	case f.format == "json":
		err = printJSON(cmd.OutOrStdout(), e)
	default:
		err = e.Connection.WriteVerdict(cmd.OutOrStdout())
	}
	if err == nil && !e.Connection.IsAllowed() {
		return errNegative
	}
	return err
}

// peer is what a client connects to: a target, or a Pod at the target's port.
type peer struct {
	connection.Target
	pod *dnsconfig.Reference // nil if the target has a host
	// service is a Service, whose name is looked up; the zero key if the target has a host.
	service cluster.Key
	// message is what is sent to a URL; nil for a target without one.
	message *request.Message
}

// parsePeer parses a value of --to: NAMESPACE/POD:PORT, NAMESPACE/KIND/NAME:PORT, svc/NAMESPACE/NAME:PORT,
// or what parseTarget does without NAMESPACE/SERVICE.
func parsePeer(text string) (p peer, err error) {
	host, port := text, ""
	if at := strings.LastIndex(text, ":"); at >= 0 {
		host, port = text[:at], text[at+1:]
	}
	if port == "" || isAddress(text) {
		return p, fmt.Errorf(
			"--to: %q has no port, as in shop/db-0:5432, svc/shop/db:5432, db.shop:5432/udp or [fd00::1]:443",
			text,
		)
	}
	kind, name, slash := strings.Cut(host, "/")
	if !slash {
		var ok bool
		if p.Target, ok, err = parseTarget(text); err == nil && !ok {
			err = fmt.Errorf("%q is not HOST:PORT, such as web.shop:80 or [fd00::1]:80", text)
		}
	} else if p.Target, _, err = parseTarget("pod:" + port); err == nil {
		p.Host = host
		switch kind {
		case "svc", "service", "services":
			namespace, name, ok := strings.Cut(name, "/")
			if p.service = (cluster.Key{Namespace: namespace, Name: name}); !ok || name == "" || namespace == "" {
				err = fmt.Errorf("%q is not svc/NAMESPACE/NAME:PORT, such as svc/shop/db:5432", text)
			}
		default:
			p.pod, err = parseReference(host)
		}
	}
	if err != nil {
		err = fmt.Errorf("--to: %w", err)
	}
	return p, err
}

// in completes a connection with a peer of the cluster.
func (p *peer) in(pods *podapp.Inspector, namespace string, q *podapp.Way) error {
	switch domains := pods.Domains(); {
	case p.pod != nil:
		subject, err := pods.Subject(p.pod.In(namespace))
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		q.To = &subject
	case p.service.Name != "" && len(domains) > 0:
		q.Target.Host = p.service.Name + "." + p.service.Namespace + ".svc." + domains[0] + "."
		q.DNS.Name = q.Target.Host
	}
	return nil
}

// evaluate returns what a client sees that connects to a peer.
func (f *explainFlags) evaluate(cmd *cobra.Command, to peer) (*path.Explanation, error) {
	q, err := f.connection(cmd, &to)
	if err != nil {
		return nil, err
	}
	if to.message == nil {
		f.pod.source.also = []cluster.Kind{cluster.KindClusterNetworkPolicy}
	}
	if f.to != "" { // of others it is said where they matter
		f.pod.source.matters = []cluster.Kind{
			cluster.KindPod,
			cluster.KindNamespace,
			cluster.KindNode,
			cluster.KindNetworkPolicy,
			cluster.KindClusterNetworkPolicy,
		}
	}
	if err := f.askKernel(&q); err != nil {
		return nil, err
	}
	client, elsewhere := f.parseClient(f.from)
	var pods *podapp.Inspector
	var namespace string // of what is named without one
	if elsewhere {
		settings, err := f.pod.source.readOnce()
		if err != nil {
			return nil, err
		}
		if namespace, err = f.pod.source.defaultNamespace(settings); err != nil {
			return nil, err
		}
		l, err := load(cmd, &f.pod.source, source.Whole)
		if err != nil {
			return nil, err
		}
		pods = l.pods
	} else {
		ref, err := f.reference(cmd)
		if err != nil {
			return nil, err
		}
		c, err := f.pod.read(cmd, ref)
		if err != nil {
			return nil, err
		}
		c.cluster.warnOfZones(cmd.ErrOrStderr())
		client.Subject, q.DNS.Subject, q.DNS.Node = c.subject, c.subject, c.node
		pods, namespace = c.pods, c.subject.Namespace
	}
	q.Client, q.Namespace = &client, namespace
	if err := pods.CheckNode(f.onNode); err != nil && cmd.Flags().Changed("node") {
		return nil, err
	}
	if f.to != "" && !pods.KnowsPolicies() {
		return nil, errPoliciesUnread
	}
	if err := to.in(pods, namespace, &q); err != nil {
		return nil, err
	}
	return pods.Path(cmd.Context(), q)
}

// askKernel has the kernel asked: for the verdict of policies if there is one to ask, otherwise for the
// address of a Service if the flags say so.
func (f *explainFlags) askKernel(q *podapp.Way) error {
	if f.to == "" && !f.kernel {
		return nil
	}
	settings, err := f.pod.source.read()
	if err != nil {
		return err
	}
	var node string
	if f.to == "" {
		if q.Kernel, err = kernelReader(&settings); err == nil {
			node = q.Kernel.Node
		}
	} else if q.Judge, err = kernelJudge(&settings, f.kernel); q.Judge != nil && f.kernel {
		node = q.Judge.Node
	}
	f.onNode = cmp.Or(f.onNode, node)
	return err
}

// connection returns the question, without the client.
func (f *explainFlags) connection(cmd *cobra.Command, to *peer) (q podapp.Way, err error) {
	q.Target, q.Message = to.Target, to.message
	if q.DNS, err = f.question(cmd.Context(), to.Host); err != nil {
		return q, err
	}
	if q.DNS.Type != 0 {
		return q, errors.New("--type is not for HOST:PORT: connections use addresses")
	}
	return q, nil
}

// reference returns the Pod of the flags; nil is the only one of the file.
func (f *explainFlags) reference(cmd *cobra.Command) (*dnsconfig.Reference, error) {
	if f.pod.file != "" && !cmd.Flags().Changed("from") {
		return nil, nil
	}
	return parseReference(f.from)
}

// errNameOnly is the error of a name without a port for a client that is no Pod.
var errNameOnly = errors.New("--from node and outside go with HOST:PORT; names are resolved by Pods")
