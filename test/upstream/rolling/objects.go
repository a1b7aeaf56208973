//go:build linux

package rolling

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The names of the objects, and the label of their Pods.
const (
	serverName, clientName     = "server", "client"
	internalName, externalName = "internal", "external"
	label                      = "app"
)

// port is that of servers and clients.
const port = 8080

func selector(name string) map[string]string { return map[string]string{label: name} }

func service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: selector(serverName), Ports: []corev1.ServicePort{{Port: port}},
	}}
}

func internalService() *corev1.Service { return service(internalName) }

// externalService has node ports for connections and for health checks. No cloud provider gives it
// an address.
func externalService() *corev1.Service {
	s := service(externalName)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	return s
}

// servers is the Deployment, with the rolling update that is the default of Deployments.
func (r *run) servers() *appsv1.Deployment {
	pod := podTemplate(serverName, "-grace", r.Grace.String(), "serve")
	const end = 60 // seconds for the last connections, on a loaded machine
	pod.Spec.TerminationGracePeriodSeconds = new(int64(r.Grace.Seconds()) + end)
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: serverName}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(r.Replicas)), Selector: &metav1.LabelSelector{MatchLabels: selector(serverName)}, Template: pod,
	}}
}

// clients is a DaemonSet whose Pods connect to the cluster IP of a Service.
func clients(of *corev1.Service) *appsv1.DaemonSet {
	pod := podTemplate(clientName, "connect", address(of.Spec.ClusterIP, port))
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: clientName}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: selector(clientName)}, Template: pod,
	}}
}

// podTemplate is of Pods that run the program of cmd/traffic. They are ready when they listen.
func podTemplate(name string, args ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector(name)}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{
			Name: name, Image: "traffic", Args: args,
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{
					TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)},
				},
				PeriodSeconds: 1, TimeoutSeconds: 10,
			},
		}},
	}}
}
