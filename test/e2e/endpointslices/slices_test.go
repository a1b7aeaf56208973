package endpointslices_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
)

// seeds are those of the sequences, one each. They stay, so that what went wrong
// goes wrong again.
var seeds = []uint64{
	1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584, 4181, 6765, 10946,
	17711, 28657, 46368, 75025, 121393, 196418, 317811, 514229, 832040, 1346269, 2178309, 3524578,
}

// What each sequence is made of: events, and a comparison after each round.
const (
	rounds       = 6
	roundEvents  = 10
	sequencesOut = 8 // at once
)

// TestSlices: the EndpointSlices that are made in memory are those that
// Kubernetes' own controller makes, whatever happens to Services, Pods and Nodes.
func TestSlices(t *testing.T) {
	c := startSlicesPlane(t, controlplane.Options{})
	m := newMemory(t, c)
	runSequences(t, c, m, (*sequence).nudge)
	t.Run("topology mode", func(t *testing.T) { testTopologyMode(t, c, m) })
}

// startSlicesPlane starts a control plane for sequences of events, which has its
// controllers.
func startSlicesPlane(t *testing.T, options controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	options.ControllerManager = true
	// Pods need no account here. The controllers may ask as often as they like.
	options.APIServerFlags = []string{"--disable-admission-plugins=ServiceAccount"}
	options.ControllerFlags = []string{"--kube-api-qps=1000", "--kube-api-burst=1000"}
	return controlplanetest.Start(t, options)
}

// runSequences runs all sequences, and looks at all they left once more at the
// end: nothing that came late made a difference. Help is what controllers may need.
func runSequences(t *testing.T, c *controlplane.ControlPlane, m *memory, help func(*sequence) error) {
	t.Helper()
	began := time.Now()
	sequences := make([]*sequence, len(seeds))
	client := quietClient(t, c)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(sequencesOut)
	for i, seed := range seeds {
		sequences[i] = newSequence(ctx, client, seed, i)
		sequences[i].help = help
		group.Go(func() error {
			if err := sequences[i].run(c, m); err != nil {
				return fmt.Errorf("sequence %d, seed %d: %w", i, seed, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sequences of %d events, compared %d times each, in %.1f s", len(seeds), rounds*roundEvents, rounds, time.Since(began).Seconds())
	var lines []string
	for i, s := range sequences {
		s.ctx = t.Context()
		lines = append(lines, m.described(s.namespace, slices.Sorted(maps.Keys(s.services)), hintsWhole)...)
		if err := s.compare(c, m); err != nil {
			t.Errorf("sequence %d, seed %d, at the end: %v", i, seeds[i], err)
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	}
	checkVariety(t, lines)
}

// quietClient is an administrator's, which does not print warnings.
func quietClient(t *testing.T, c *controlplane.ControlPlane) *kubernetes.Clientset {
	t.Helper()
	cfg := c.RESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// checkVariety reports whether there was of everything what sequences are to
// compare.
func checkVariety(t *testing.T, lines []string) {
	t.Helper()
	for _, part := range []string{
		" IPv4 ", " IPv6 ", " [] ", "/UDP/", "/example.com/metrics", "ready=true serving=true", "ready=false serving=true terminating=true",
		"ready=false serving=false", "ready=true serving=false", "hostname=pod-", "zone=-", "zone=east", "hints=zone north", "hints=zone south,node slices-",
		"hints=-", "http/TCP/8080/", "http/TCP/8081/", "service.kubernetes.io/headless:",
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, part) }) {
			t.Errorf("no slice of all that were left says %q", part)
		}
	}
	t.Logf("%d lines were left", len(lines))
}

func (s *sequence) run(c *controlplane.ControlPlane, m *memory) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("at the beginning: %w", err)
	}
	for round := range rounds {
		for event := range roundEvents {
			if err := s.step(); err != nil {
				return fmt.Errorf("round %d, event %d: %w", round, event, err)
			}
		}
		if err := s.compare(c, m); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// compare waits until both sides agree on the sequence's Namespace.
func (s *sequence) compare(c *controlplane.ControlPlane, m *memory) error {
	return awaitEqual(s.ctx, await.Patience,
		func() ([]string, error) { return ofControllers(s.ctx, c, s.namespace, hintsWhole) },
		func() []string { return m.described(s.namespace, slices.Sorted(maps.Keys(s.services)), hintsWhole) },
		func() error { return s.help(s) })
}

// testTopologyMode: Services with the annotation get hints on both sides, or on
// none, while Pods come and go and zones have more or fewer processors. It needs
// all Nodes for itself: one without a zone ends all hints.
func testTopologyMode(t *testing.T, c *controlplane.ControlPlane, m *memory) {
	s := newSequence(t.Context(), c.Client(), 8, len(seeds))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if _, err := c.Client().CoreV1().Namespaces().Create(s.ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, zone := range []string{"east", "north", "south"} {
		s.addZonedNode(t, zone)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Annotations: map[string]string{corev1.AnnotationTopologyMode: "Auto"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "a"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := c.Client().CoreV1().Services(s.namespace).Create(s.ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.services[service.Name] = true
	hinted := 0
	for round := range 8 {
		// Two Pods are too few for three zones, nine are enough.
		for range []int{2, 7, 0, 0, 0, 0, 0, 0}[round] {
			s.addReadyPod(t)
		}
		if round > 1 {
			if err := s.flipPod(); err != nil {
				t.Fatal(err)
			}
		}
		err := awaitEqual(s.ctx, await.Patience,
			func() ([]string, error) { return ofControllers(s.ctx, c, s.namespace, hintsThere) },
			func() []string { return m.described(s.namespace, []string{service.Name}, hintsThere) }, s.nudge)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if hasHints(m.described(s.namespace, []string{service.Name}, hintsThere)) {
			hinted++
		}
	}
	if hinted == 0 || hinted == 8 {
		t.Errorf("hints in %d of 8 rounds, want in some and not in all", hinted)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

func hasHints(lines []string) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return len(line) > 4 && line[len(line)-4:] == "some" })
}

// addZonedNode makes a Node that counts for topology hints.
func (s *sequence) addZonedNode(t *testing.T, zone string) {
	t.Helper()
	name := s.namespace + "-" + zone
	nodes := s.client.CoreV1().Nodes()
	node, err := nodes.Create(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{zoneLabel: zone}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.nodes[name] = true
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("4")}
	node.Status.Capacity = node.Status.Allocatable
	if _, err := nodes.UpdateStatus(s.ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addReadyPod makes a Pod that the Service of topology mode selects, on one Node
// after the other.
func (s *sequence) addReadyPod(t *testing.T) {
	t.Helper()
	name := s.name("pod")
	nodes := slices.Sorted(maps.Keys(s.nodes))
	pods := s.client.CoreV1().Pods(s.namespace)
	pod, err := pods.Create(s.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{NodeName: nodes[s.made%len(nodes)], Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.pods[name] = true
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = fmt.Sprintf("10.99.0.%d", s.made)
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	setReady(&pod.Status, true)
	if _, err := pods.UpdateStatus(s.ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
