package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/request"
)

// isURL reports whether an argument of explain is a URL, and not a name or a target.
func isURL(text string) bool { return strings.Contains(text, "://") }

// gatewayKinds are the kinds, besides those that all commands read, that a gateway's rules are made of.
var gatewayKinds = append([]cluster.Kind{
	cluster.KindIngressClass, cluster.KindGatewayClass, cluster.KindGateway, cluster.KindListenerSet,
	cluster.KindReferenceGrant, cluster.KindBackendTLSPolicy, cluster.KindRoutePolicy,
	cluster.KindBackendTrafficPolicy,
}, append(cluster.RouteKinds(), cluster.ReferencedKinds()...)...)

// request prints what becomes of an HTTP request.
func (f *explainFlags) request(cmd *cobra.Command, url string) error {
	m, err := request.ParseMessage(f.method, url, f.headers)
	if err != nil {
		return err
	}
	f.pod.source.also = gatewayKinds
	f.pod.source.matters = append([]cluster.Kind{
		cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindIngress,
	}, f.pod.source.also...)
	pods, q, err := f.sender(cmd, m)
	if err != nil {
		return err
	}
	e := pods.Request(cmd.Context(), q)
	if f.format == "json" {
		err = printJSON(cmd.OutOrStdout(), e)
	} else {
		err = e.WriteText(cmd.OutOrStdout(), f.style(cmd))
	}
	if err == nil && !e.Served() {
		return errNegative
	}
	return err
}

// sender reads the cluster and, if the flags name one, the Pod that sends a request.
func (f *explainFlags) sender(cmd *cobra.Command, m request.Message) (*podapp.Inspector, podapp.HTTPRequest, error) {
	q := podapp.HTTPRequest{Message: m}
	for _, flag := range []string{"node", "kernel", "type"} {
		if cmd.Flags().Changed(flag) {
			return nil, q, fmt.Errorf("--%s is not for a URL", flag)
		}
	}
	if f.from == "" && f.pod.file == "" {
		if f.live {
			return nil, q, errors.New("--live needs --from NAMESPACE/POD, which looks the host up")
		}
		if err := errors.Join(f.format.check(), f.color.check()); err != nil {
			return nil, q, err
		}
		l, err := load(cmd, &f.pod.source, source.Whole)
		if err != nil {
			return nil, q, err
		}
		return l.pods, q, nil
	}
	if _, elsewhere := f.parseClient(f.from); elsewhere {
		return nil, q, fmt.Errorf(
			"--from %s is not for a URL: name a Pod, which looks the host up, or leave --from out",
			f.from,
		)
	}
	dns, err := f.question(cmd.Context(), m.Name)
	if err != nil {
		return nil, q, err
	}
	ref, err := f.reference(cmd)
	if err != nil {
		return nil, q, err
	}
	c, err := f.pod.read(cmd, ref)
	if err != nil {
		return nil, q, err
	}
	c.cluster.warnOfZones(cmd.ErrOrStderr())
	dns.Subject, dns.Node = c.subject, c.node
	q.DNS = &dns
	return c.pods, q, nil
}
