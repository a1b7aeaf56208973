package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/request"
)

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
	f.pod.source.also = append([]cluster.Kind{cluster.KindClusterNetworkPolicy}, gatewayKinds...)
	f.pod.source.matters = append([]cluster.Kind{
		cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindIngress,
	}, gatewayKinds...)
	to := asked{message: &m}
	to.Host = m.Lookup()
	if f.from != "" || f.pod.file != "" {
		e, err := f.evaluate(cmd, to)
		if err != nil {
			return err
		}
		return f.print(cmd, e)
	}
	for _, flag := range []string{"node", "kernel", "live"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s goes with --from", flag)
		}
	}
	if err := errors.Join(f.format.check(), f.color.check()); err != nil {
		return err
	}
	l, err := load(cmd, &f.pod.source, source.Whole)
	if err != nil {
		return err
	}
	e, err := l.pods.Path(cmd.Context(), podapp.Way{Message: to.message})
	if err != nil {
		return err
	}
	return f.print(cmd, e)
}
