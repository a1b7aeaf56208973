package endpointslices_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// sequence makes random events in a Namespace of its own, on Nodes of its own.
type sequence struct {
	ctx       context.Context
	client    *kubernetes.Clientset
	random    *rand.Rand
	namespace string
	number    int
	made      int // objects and addresses, for names
	nudges    int
	services  map[string]bool
	pods      map[string]bool
	nodes     map[string]bool
	// help is called from time to time while it is waited for controllers.
	help func(*sequence) error
}

const (
	zoneLabel   = corev1.LabelTopologyZone
	maxServices = 4
	maxPods     = 12
)

func newSequence(ctx context.Context, client *kubernetes.Clientset, seed uint64, number int) *sequence {
	return &sequence{
		ctx: ctx, client: client, random: rand.New(rand.NewPCG(seed, 8)), namespace: fmt.Sprintf("slices-%d", number), number: number,
		services: make(map[string]bool), pods: make(map[string]bool), nodes: make(map[string]bool),
		help: (*sequence).alone,
	}
}

// begin makes what the first events are about.
func (s *sequence) begin() error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if _, err := s.client.CoreV1().Namespaces().Create(s.ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	for range 3 {
		if err := s.addNode(); err != nil {
			return err
		}
	}
	for range 2 {
		if err := s.addService(); err != nil {
			return err
		}
	}
	for range 4 {
		if err := s.addPod(); err != nil {
			return err
		}
	}
	return nil
}

// step makes one event. Those that can't be, because there is nothing that they
// could happen to, are none.
func (s *sequence) step() error {
	events := []struct {
		weight int
		make   func() error
	}{
		{4, s.addPod}, {3, s.removePod}, {6, s.flipPod}, {2, s.terminatePod}, {2, s.relabelPod}, {1, s.moveAddress}, {1, s.finishPod}, {1, s.replacePod},
		{1, s.addService}, {1, s.removeService}, {4, s.changeService},
		{1, s.changeZone}, {1, s.addNode}, {1, s.removeNode},
	}
	all := 0
	for _, e := range events {
		all += e.weight
	}
	n := s.random.IntN(all)
	for _, e := range events {
		if n -= e.weight; n < 0 {
			return e.make()
		}
	}
	return nil
}

// one is one of a set, the same for the same seed.
func (s *sequence) one(set map[string]bool) (string, bool) {
	if len(set) == 0 {
		return "", false
	}
	return s.choose(slices.Sorted(maps.Keys(set))...), true
}

func (s *sequence) choose(from ...string) string { return from[s.random.IntN(len(from))] }

// chance is true once in n times.
func (s *sequence) chance(n int) bool { return s.random.IntN(n) == 0 }

func (s *sequence) name(prefix string) string {
	s.made++
	return fmt.Sprintf("%s-%d", prefix, s.made)
}

// serviceNames are few, so that Pods have subdomains that are Services.
func (s *sequence) freeService() (string, bool) {
	for i := range maxServices {
		if name := fmt.Sprintf("web-%d", i); !s.services[name] {
			return name, true
		}
	}
	return "", false
}

func (s *sequence) addService() error {
	name, ok := s.freeService()
	if !ok {
		return nil
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.labels()}}
	spec := &service.Spec
	if s.chance(3) {
		spec.ClusterIP = corev1.ClusterIPNone
	}
	spec.Selector = s.selector()
	spec.Ports = s.ports(spec.ClusterIP == corev1.ClusterIPNone)
	spec.PublishNotReadyAddresses = s.chance(4)
	spec.TrafficDistribution = s.distribution()
	s.families(spec)
	_, err := s.client.CoreV1().Services(s.namespace).Create(s.ctx, service, metav1.CreateOptions{})
	if err == nil {
		s.services[name] = true
	}
	return err
}

func (s *sequence) labels() map[string]string {
	return map[string]string{"team": s.choose("red", "blue"), "tier": s.choose("1", "2", "3")}
}

func (s *sequence) selector() map[string]string {
	selector := map[string]string{"app": s.choose("a", "b")}
	if s.chance(3) {
		selector["track"] = s.choose("stable", "canary")
	}
	return selector
}

func (s *sequence) ports(headless bool) (ports []corev1.ServicePort) {
	if headless && s.chance(3) {
		return nil
	}
	ports = append(ports, corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromString("http")})
	if s.chance(2) {
		ports = append(ports, corev1.ServicePort{Name: "metrics", Port: 9100, AppProtocol: new("example.com/metrics")})
	}
	if s.chance(3) {
		ports = append(ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")})
	}
	return ports
}

func (s *sequence) distribution() *string {
	if s.chance(2) {
		return nil
	}
	return new(s.choose(corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode))
}

func (s *sequence) families(spec *corev1.ServiceSpec) {
	switch s.random.IntN(4) {
	case 0:
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	case 1:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
}

func (s *sequence) removeService() error {
	name, ok := s.one(s.services)
	if !ok || len(s.services) == 1 {
		return nil
	}
	delete(s.services, name)
	return s.client.CoreV1().Services(s.namespace).Delete(s.ctx, name, metav1.DeleteOptions{})
}

func (s *sequence) changeService() error {
	name, ok := s.one(s.services)
	if !ok {
		return nil
	}
	services := s.client.CoreV1().Services(s.namespace)
	service, err := services.Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	spec := &service.Spec
	switch s.random.IntN(6) {
	case 0:
		spec.Selector = s.selector()
	case 1:
		spec.Ports = s.ports(spec.ClusterIP == corev1.ClusterIPNone)
	case 2:
		spec.PublishNotReadyAddresses = !spec.PublishNotReadyAddresses
	case 3:
		spec.TrafficDistribution = s.distribution()
	case 4:
		service.Labels = s.labels()
	case 5:
		changeFamilies(spec)
	}
	_, err = services.Update(s.ctx, service, metav1.UpdateOptions{})
	return err
}

// changeFamilies makes a Service of one family one of two, and the other way
// round.
func changeFamilies(spec *corev1.ServiceSpec) {
	if len(spec.IPFamilies) == 1 {
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		return
	}
	spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	spec.IPFamilies = spec.IPFamilies[:1]
	spec.ClusterIPs = spec.ClusterIPs[:1]
}

func (s *sequence) addPod() error {
	if len(s.pods) == maxPods {
		return nil
	}
	return s.createPod(s.name("pod"))
}

func (s *sequence) createPod(name string) error {
	node, ok := s.one(s.nodes)
	if !ok {
		return nil
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.podLabels()},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c", Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: int32(8080 + s.random.IntN(2))},
		}}}},
	}
	if s.chance(2) {
		c := &pod.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "dns", ContainerPort: 1053, Protocol: corev1.ProtocolUDP})
	}
	if s.chance(3) {
		pod.Spec.Hostname, pod.Spec.Subdomain = name, fmt.Sprintf("web-%d", s.random.IntN(maxServices))
	}
	pods := s.client.CoreV1().Pods(s.namespace)
	pod, err := pods.Create(s.ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.pods[name] = true
	if s.chance(8) {
		return nil // it waits for its address
	}
	pod.Status.Phase = corev1.PodRunning
	s.setAddresses(&pod.Status)
	setReady(&pod.Status, !s.chance(3))
	_, err = pods.UpdateStatus(s.ctx, pod, metav1.UpdateOptions{})
	return err
}

func (s *sequence) podLabels() map[string]string {
	return map[string]string{"app": s.choose("a", "b"), "track": s.choose("stable", "canary")}
}

// setAddresses gives a Pod an address of one family, or of each.
func (s *sequence) setAddresses(status *corev1.PodStatus) {
	s.made++
	v4 := corev1.PodIP{IP: fmt.Sprintf("10.%d.%d.%d", 100+s.number, s.made/250, 1+s.made%250)}
	v6 := corev1.PodIP{IP: fmt.Sprintf("fd00:%x::%x", 100+s.number, s.made)}
	status.PodIPs = [][]corev1.PodIP{{v4, v6}, {v4, v6}, {v6, v4}, {v4}, {v6}}[s.random.IntN(5)]
	status.PodIP = status.PodIPs[0].IP
}

func setReady(status *corev1.PodStatus, ready bool) {
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		condition.Status = corev1.ConditionTrue
	}
	status.Conditions = []corev1.PodCondition{condition}
}

// pod changes one Pod, and gives it to write. A Pod that is gone, because it was
// told to end before it had an address, is forgotten.
func (s *sequence) pod(change func(*corev1.Pod), write func(*corev1.Pod) error) error {
	name, ok := s.one(s.pods)
	if !ok {
		return nil
	}
	pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		delete(s.pods, name)
		return nil
	}
	if err != nil {
		return err
	}
	change(pod)
	return write(pod)
}

func (s *sequence) writePod(pod *corev1.Pod) error {
	_, err := s.client.CoreV1().Pods(s.namespace).Update(s.ctx, pod, metav1.UpdateOptions{})
	return err
}

func (s *sequence) writeStatus(pod *corev1.Pod) error {
	_, err := s.client.CoreV1().Pods(s.namespace).UpdateStatus(s.ctx, pod, metav1.UpdateOptions{})
	return err
}

func (s *sequence) flipPod() error {
	return s.pod(func(p *corev1.Pod) {
		was := len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue
		p.Status.Phase = corev1.PodRunning
		if len(p.Status.PodIPs) == 0 {
			s.setAddresses(&p.Status)
		}
		setReady(&p.Status, !was)
	}, s.writeStatus)
}

func (s *sequence) relabelPod() error {
	return s.pod(func(p *corev1.Pod) { p.Labels = s.podLabels() }, s.writePod)
}

func (s *sequence) moveAddress() error {
	return s.pod(func(p *corev1.Pod) { s.setAddresses(&p.Status) }, s.writeStatus)
}

func (s *sequence) finishPod() error {
	return s.pod(func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		setReady(&p.Status, false)
	}, s.writeStatus)
}

// terminatePod has a Pod end gently; it stays until it is removed.
func (s *sequence) terminatePod() error {
	return s.pod(func(*corev1.Pod) {}, func(p *corev1.Pod) error {
		return s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(600))})
	})
}

func (s *sequence) removePod() error {
	return s.pod(func(*corev1.Pod) {}, func(p *corev1.Pod) error {
		delete(s.pods, p.Name)
		return s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	})
}

// replacePod makes another Pod of the same name, which may have other ports.
func (s *sequence) replacePod() error {
	return s.pod(func(*corev1.Pod) {}, func(p *corev1.Pod) error {
		delete(s.pods, p.Name)
		if err := s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			return err
		}
		return s.createPod(p.Name)
	})
}

func (s *sequence) addNode() error {
	for i := range 4 {
		name := fmt.Sprintf("%s-node-%d", s.namespace, i)
		if s.nodes[name] {
			continue
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{zoneLabel: s.zone()}}}
		s.nodes[name] = true
		_, err := s.client.CoreV1().Nodes().Create(s.ctx, node, metav1.CreateOptions{})
		return err
	}
	return nil
}

func (s *sequence) zone() string { return s.choose("east", "north", "south", "") }

func (s *sequence) changeZone() error {
	name, ok := s.one(s.nodes)
	if !ok {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, zoneLabel, s.zone())
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// removeNode leaves Pods without their node.
func (s *sequence) removeNode() error {
	name, ok := s.one(s.nodes)
	if !ok || len(s.nodes) == 1 {
		return nil
	}
	delete(s.nodes, name)
	return s.client.CoreV1().Nodes().Delete(s.ctx, name, metav1.DeleteOptions{})
}

// alone is no help.
func (s *sequence) alone() error { return nil }

// nudge changes what nobody looks at of each Service.
func (s *sequence) nudge() error {
	s.nudges++
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/nudged":"%d"}}}`, s.nudges)
	for name := range s.services {
		if _, err := s.client.CoreV1().Services(s.namespace).Patch(s.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// end removes what is in no Namespace.
func (s *sequence) end() error {
	for name := range s.nodes {
		if err := s.client.CoreV1().Nodes().Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}
