package lint

import "portolan.dev/portolan/internal/cluster"

// Kinds lists the kinds that CheckAll reads. While one of them is not loaded, the rules that need it do not apply.
func Kinds() []cluster.Kind {
	return append(
		[]cluster.Kind{
			cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod, cluster.KindNode,
			cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet, cluster.KindJob, cluster.KindCronJob,
			cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy, // which package semantics reads
			cluster.KindIngress, cluster.KindIngressClass, cluster.KindGateway, cluster.KindGatewayClass,
			cluster.KindListenerSet, cluster.KindReferenceGrant, cluster.KindBackendTLSPolicy, cluster.KindRoutePolicy,
			cluster.KindBackendTrafficPolicy,
		},
		append(cluster.RouteKinds(), cluster.ReferencedKinds()...)...,
	)
}
