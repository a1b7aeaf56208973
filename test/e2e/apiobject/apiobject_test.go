package apiobject_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/discovery"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/kube/simulate/apiobject"
	"portolan.dev/portolan/internal/pod/serviceenv"
)

const cases = 3000

func pick[T any](random *rand.Rand, all ...T) T { return all[random.IntN(len(all))] }

// some are some of all, in any order.
func some[T any](random *rand.Rand, all ...T) (chosen []T) {
	for _, i := range random.Perm(len(all))[:random.IntN(len(all)+1)] {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// service makes a Service that an API server may have, or be given.
func service(random *rand.Rand, name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
	s.Spec.Type = pick(random, "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		s.Spec.ExternalName = "db.example.com"
	} else if ips := some(random, "10.0.0.9", "fd00::9"); len(ips) > 0 {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], ips
	}
	s.Spec.ExternalIPs = some(random, "192.0.2.1", "192.0.2.2")
	s.Spec.SessionAffinity = pick(random, "", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	s.Spec.ExternalTrafficPolicy = pick(random, "", corev1.ServiceExternalTrafficPolicyLocal)
	s.Spec.InternalTrafficPolicy = pick(random, nil, new(corev1.ServiceInternalTrafficPolicyLocal))
	s.Spec.AllocateLoadBalancerNodePorts = pick(random, nil, new(false))
	s.Spec.Selector = pick(random, nil, map[string]string{"b": "2", "a": "1"})
	for i := range 1 + random.IntN(3) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: pick(random, fmt.Sprintf("port-%d", i), fmt.Sprintf("p%d", i)), Port: int32(80 + i), Protocol: pick(random, "", corev1.ProtocolUDP, corev1.ProtocolTCP, corev1.ProtocolSCTP),
			TargetPort: pick(random, intstr.IntOrString{}, intstr.FromInt32(8080), intstr.FromString("web")), NodePort: pick(random, 0, int32(30000+i)),
		})
	}
	for _, ip := range some(random, "198.51.100.7", "198.51.100.6") {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, pick(random, corev1.LoadBalancerIngress{IP: ip}, corev1.LoadBalancerIngress{Hostname: "balancer.example.com"}))
	}
	return s
}

// containerStatus makes one in any state.
func containerStatus(random *rand.Rand, name string) corev1.ContainerStatus {
	ended := &corev1.ContainerStateTerminated{Reason: pick(random, "", "Completed", "OOMKilled"), ExitCode: pick(random, int32(0), 0, 1), Signal: pick(random, int32(0), 9)}
	return corev1.ContainerStatus{
		Name: name, Ready: random.IntN(2) == 0, Started: pick(random, nil, new(true), new(false)), RestartCount: pick(random, int32(0), 3),
		State: pick(random, corev1.ContainerState{}, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{Terminated: ended},
			corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: pick(random, "", "PodInitializing", "CrashLoopBackOff")}}),
		LastTerminationState: pick(random, corev1.ContainerState{}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Now().Add(-49 * time.Hour))}}),
	}
}

func pod(random *rand.Rand) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	p.CreationTimestamp = pick(random, metav1.Time{}, metav1.NewTime(time.Now().Add(-75*time.Hour)))
	p.DeletionTimestamp = pick(random, nil, nil, nil, &metav1.Time{Time: time.Now()})
	p.Spec.NodeName, p.Status.NominatedNodeName = pick(random, "", "n1"), pick(random, "", "n2")
	p.Spec.ReadinessGates = some(random, corev1.PodReadinessGate{ConditionType: "x"}, corev1.PodReadinessGate{ConditionType: "y"})
	for i := range random.IntN(3) {
		c := corev1.Container{Name: fmt.Sprintf("i%d", i), RestartPolicy: pick(random, nil, new(corev1.ContainerRestartPolicyAlways))}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, containerStatus(random, c.Name))
	}
	for i := range 1 + random.IntN(3) {
		name := fmt.Sprintf("c%d", i)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, containerStatus(random, name))
	}
	p.Status.Phase = pick(random, corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, "")
	p.Status.Reason = pick(random, "", "", "Evicted", "NodeLost")
	for _, kind := range some(random, corev1.PodReady, corev1.PodInitialized, corev1.PodScheduled, "x") {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: pick(random, corev1.ConditionTrue, corev1.ConditionFalse), Reason: pick(random, "", corev1.PodReasonSchedulingGated)})
	}
	for _, ip := range some(random, "10.1.0.1", "fd00::1") {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func slice(random *rand.Rand) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop"}, AddressType: discoveryv1.AddressTypeIPv4}
	for i := range random.IntN(6) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Port: pick(random, nil, new(int32(i))), Name: pick(random, nil, new("web"))})
	}
	for i := range random.IntN(6) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: some(random, fmt.Sprint("10.1.0.", i), fmt.Sprint("10.2.0.", i))})
	}
	return s
}

// TestTables compares the cells of tables with those of kubectl.
func TestTables(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 5))
	generator := printers.NewTableGenerator().With(printersinternal.AddHandlers)
	for i := range cases {
		wide := random.IntN(2) == 0
		s := service(random, "web")
		legacyscheme.Scheme.Default(s)
		for kind, test := range map[cluster.Kind]struct {
			object   apiobject.Object
			internal runtime.Object
		}{
			cluster.KindService:       {s, new(core.Service)},
			cluster.KindEndpointSlice: {slice(random), new(discovery.EndpointSlice)},
			cluster.KindPod:           {pod(random), new(core.Pod)},
		} {
			if err := legacyscheme.Scheme.Convert(test.object, test.internal, nil); err != nil {
				t.Fatal(err)
			}
			want, err := generator.GenerateTable(test.internal, printers.GenerateOptions{Wide: wide})
			if err != nil {
				t.Fatal(err)
			}
			var header, cells []string
			for j, c := range want.ColumnDefinitions {
				if c.Priority == 0 || wide {
					header, cells = append(header, strings.ToUpper(c.Name)), append(cells, fmt.Sprint(want.Rows[0].Cells[j]))
				}
			}
			got := apiobject.Table(kind, []apiobject.Object{test.object}, apiobject.Columns{Wide: wide, Now: time.Now()})
			if !slices.Equal(got[0], header) || !slices.Equal(got[1], cells) {
				text, _ := json.Marshal(test.object)
				t.Fatalf("case %d: %s\ngot  %q %q\nwant %q %q", i, text, got[0], got[1], header, cells)
			}
		}
	}
}

// modeled puts Services into a Store, as they are declared.
func modeled(t *testing.T, services []*corev1.Service) apiobject.Builder {
	t.Helper()
	declared := make(map[cluster.Key][]byte)
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, s := range services {
			m, errs := object.Service(s)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			tx.Put(m)
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			declared[m.Key] = text
		}
	})
	return apiobject.Builder{Store: store, Declared: func(_ cluster.Kind, key cluster.Key) []byte { return declared[key] }}
}

// TestDefaults compares what is set in Services with what an API server sets.
func TestDefaults(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 6))
	for i := range cases {
		s := service(random, "web")
		c := modeled(t, []*corev1.Service{s})
		objects, err := c.Objects(apiobject.Choice{Kind: cluster.KindService})
		if err != nil || len(objects) != 1 {
			t.Fatal(len(objects), err)
		}
		before, _ := json.Marshal(s)
		legacyscheme.Scheme.Default(s)
		want, _ := json.Marshal(s.Spec)
		if got, _ := json.Marshal(objects[0].(*corev1.Service).Spec); string(got) != string(want) {
			t.Fatalf("case %d: %s\ngot  %s\nwant %s", i, before, got, want)
		}
	}
}

// TestEnvironment compares variables with the kubelet's.
func TestEnvironment(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 7))
	for i := range cases {
		var services []*corev1.Service
		for j := range random.IntN(4) {
			services = append(services, service(random, fmt.Sprintf("web-%d-%s", j, pick(random, "a", "b-c"))))
		}
		c := modeled(t, services)
		want := make(map[string]string)
		for _, v := range envvars.FromServices(services) {
			want[v.Name] = v.Value
		}
		c.Store.View(func(v *cluster.View) {
			e := serviceenv.Compute(v, "shop", new(cluster.PodSpec))
			for _, got := range e.Variables {
				if value, ok := want[got.Name]; !ok || value != got.Value {
					t.Fatalf("case %d: got %s, want %s", i, got, value)
				}
				delete(want, got.Name)
			}
		})
		if len(want) > 0 {
			t.Fatalf("case %d: missing %v", i, want)
		}
	}
}
