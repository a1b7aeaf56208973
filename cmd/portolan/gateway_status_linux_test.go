package main

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/config/configtest"
	"portolan.dev/portolan/internal/kube/apitest"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"gateway.publish.addresses": func(t *testing.T) { wantPublished(t, "{addresses: [192.0.2.7]}", "192.0.2.7") },
		"gateway.publish.node":      func(t *testing.T) { wantPublished(t, "{node: true}, nodeName: n1", "192.0.2.8") },
		"gateway.publish.service":   func(t *testing.T) { wantPublished(t, "{service: edge/gateway}", "192.0.2.9") },
		"gateway.lease":             effectOfGatewayLease,
	})
}

// startGatewayOf starts a gateway that reads an API server, with settings of its section.
func startGatewayOf(t *testing.T, api *apitest.Server, section string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	text := fmt.Sprintf("kubernetes: {kubeconfig: %q}\nadmin: {listen: %q}\ngateway: {listen: [%s]}",
		api.Kubeconfig(t), anyPort, loopbackAddress())
	write(t, file, configtest.Merge(text, "gateway: {"+section+"}"))
	p := follow(t, exec.Command("portolan", "gateway", "--config", file))
	p.waitLog("requests are served")
	return p
}

// wantPublished checks that a Gateway gets an address by settings of publish, and that it is programmed.
func wantPublished(t *testing.T, publish, address string) {
	t.Helper()
	api := gatewayAPI(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.8"}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "gateway"}}
	service.Spec.Type, service.Spec.ClusterIP = corev1.ServiceTypeLoadBalancer, "10.96.0.9"
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}
	api.Put(node, service)
	p := startGatewayOf(t, api, "publish: "+publish)
	p.poll(patience, func() error {
		var gw gatewayv1.Gateway
		if !api.Get("shop", "public", &gw) {
			return errors.New("no Gateway")
		}
		programmed := false
		for _, c := range gw.Status.Conditions {
			programmed = programmed || c.Type == "Programmed" && c.Status == metav1.ConditionTrue
		}
		if len(gw.Status.Addresses) != 1 || gw.Status.Addresses[0].Value != address || !programmed {
			return fmt.Errorf("publish: %s: status %+v, want the address %s", publish, gw.Status, address)
		}
		return nil
	})
}

// TestGatewayNamesAddress: a Gateway that names an address of the gateway's Service is served when the Service has it,
// and its status has that address alone.
func TestGatewayNamesAddress(t *testing.T) {
	t.Parallel()
	api := gatewayAPI(t)
	var gw gatewayv1.Gateway
	if !api.Get("shop", "public", &gw) {
		t.Fatal("no Gateway")
	}
	gw.Spec.Addresses = []gatewayv1.GatewaySpecAddress{{Value: "192.0.2.10"}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "edge", Name: "gateway", Annotations: map[string]string{"portolan.dev/load-balancer-ips": "192.0.2.10"},
	}}
	service.Spec.Type, service.Spec.ClusterIP = corev1.ServiceTypeLoadBalancer, "10.96.0.9"
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}
	api.Put(&gw, service)
	p := startGatewayOf(t, api, "publish: {service: edge/gateway}")
	want := func(reason, addresses string) {
		t.Helper()
		p.poll(patience, func() error {
			api.Get("shop", "public", &gw)
			at := []string{}
			for _, a := range gw.Status.Addresses {
				at = append(at, a.Value)
			}
			for _, c := range gw.Status.Conditions {
				if c.Type == "Programmed" && c.Reason == reason && strings.Join(at, " ") == addresses {
					return nil
				}
			}
			return fmt.Errorf("status %+v, want Programmed %s and the addresses %q", gw.Status, reason, addresses)
		})
	}
	want("AddressNotAssigned", "")
	service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress,
		corev1.LoadBalancerIngress{IP: "192.0.2.10"})
	api.Put(service)
	want("Programmed", "192.0.2.10")
	service.Status.LoadBalancer.Ingress = service.Status.LoadBalancer.Ingress[:1]
	delete(service.Annotations, "portolan.dev/load-balancer-ips")
	api.Put(service)
	want("AddressNotUsable", "")
	service.Spec.ExternalIPs = []string{"192.0.2.10"}
	api.Put(service)
	want("Programmed", "192.0.2.10")
}

func effectOfGatewayLease(t *testing.T) {
	for lease, want := range map[string]string{"": "kube-system/portolan-gateway", ", lease: edge/own": "edge/own"} {
		api := gatewayAPI(t)
		p := startGatewayOf(t, api, "publish: {addresses: [192.0.2.7]}"+lease)
		namespace, name, _ := strings.Cut(want, "/")
		p.poll(patience, func() error {
			if !api.Get(namespace, name, new(coordinationv1.Lease)) {
				return fmt.Errorf("%q: no Lease %s", lease, want)
			}
			return nil
		})
	}
}

// TestGatewayPreview: a gateway without an address that others could know serves a cluster, and writes nothing to it.
func TestGatewayPreview(t *testing.T) {
	t.Parallel()
	api := gatewayAPI(t)
	p := startGatewayOf(t, api, "ingress: {port: 80}")
	p.waitLog("statuses are not written: gateway.publish and gateway.pool are empty")
	p.stop(syscall.SIGTERM)
	if writes := api.Writes(); len(writes) > 0 {
		t.Errorf("it wrote %q", writes)
	}
}
