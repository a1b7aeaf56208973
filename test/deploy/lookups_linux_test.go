package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"portolan.dev/portolan/test/e2e/container"
	"portolan.dev/portolan/test/e2e/kubeadm"
)

// lookups is a client that resolves names at the cluster DNS IP all the time, and the
// kube-proxy of its node: each query goes to an endpoint of the Service kube-dns that
// is ready; where none is, to one that terminates and still serves (KEP-1669). A
// lookup is one query without a retry, and is lost if it has no answer within a
// second, another answer than the right one, or no endpoint to go to.
type lookups struct {
	kubelet  *kubelet
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister

	mu        sync.Mutex
	endpoints []*localPod
	counts    counts
	lost      []string // why, the first few
}

// counts are of lookups.
type counts struct {
	sent, lost int
	answered   map[string]int // by the name of the Deployment
}

const (
	// syncPeriod is how long kube-proxy's rules may be behind the API: its
	// minSyncPeriod, by default.
	syncPeriod = time.Second
	// pace is the pause of one client between an answer and the next query.
	pace    = 5 * time.Millisecond
	clients = 4
)

// names are what is looked up, with the address of each.
var names = map[string]string{
	"kubernetes.default.svc.cluster.local.":   "10.96.0.1",
	"kube-dns.kube-system.svc.cluster.local.": kubeadm.DNSIP,
}

// run resolves until ctx is done.
func (l *lookups) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		for every(ctx, syncPeriod) {
			l.sync()
		}
	})
	for range clients {
		running.Go(func() {
			for every(ctx, pace) {
				for name, address := range names {
					l.lookUp(ctx, name, address)
				}
			}
		})
	}
	running.Wait()
}

// every waits for the period and reports whether ctx is not done yet.
func every(ctx context.Context, period time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(period):
		return true
	}
}

// sync takes over the endpoints that the API server has now.
func (l *lookups) sync() {
	var ready, serving []*localPod
	service, err := l.services.Services("kube-system").Get("kube-dns")
	if err == nil && service.Spec.ClusterIP == kubeadm.DNSIP {
		ready, serving = l.read()
	}
	if len(ready) == 0 {
		ready = serving
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endpoints = ready
}

func (l *lookups) read() (ready, serving []*localPod) {
	own := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "kube-dns"})
	all, _ := l.slices.EndpointSlices("kube-system").List(own) // of memory
	for _, slice := range all {
		if len(slice.Ports) == 0 {
			continue
		}
		for _, e := range slice.Endpoints {
			is := e.Conditions
			pod := l.kubelet.at(e.Addresses[0])
			switch {
			case pod == nil:
			case is.Ready == nil || *is.Ready:
				ready = append(ready, pod)
			case is.Serving != nil && *is.Serving && is.Terminating != nil && *is.Terminating:
				serving = append(serving, pod)
			}
		}
	}
	return ready, serving
}

// lookUp looks one name up and counts it.
func (l *lookups) lookUp(ctx context.Context, name, address string) {
	l.mu.Lock()
	var to *localPod
	if n := len(l.endpoints); n > 0 {
		to = l.endpoints[rand.IntN(n)]
	}
	l.mu.Unlock()
	err := errors.New("the Service kube-dns has no endpoints")
	if to != nil {
		err = resolve(ctx, to, name, address)
	}
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.sent++
	if err == nil {
		if l.counts.answered == nil {
			l.counts.answered = make(map[string]int)
		}
		l.counts.answered[deploymentOf(to.Pod)]++
		return
	}
	l.counts.lost++
	const enough = 5
	if len(l.lost) < enough {
		l.lost = append(l.lost, err.Error())
	}
}

// deploymentOf is the name of the Deployment that a Pod is of.
func deploymentOf(pod *corev1.Pod) string {
	name, _, _ := strings.Cut(pod.Name, "-")
	return name
}

// resolve queries a Pod over UDP for the address of a name.
func resolve(ctx context.Context, pod *localPod, name, address string) error {
	where := fmt.Sprintf("%s at %s", name, pod.Name)
	conn, err := pod.network.Dial(ctx, "udp", net.JoinHostPort(container.PodAddress, "53"))
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	query := dnsmessage.Message{
		Header: dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
		}},
	}
	packet, err := query.Pack()
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if _, err := conn.Write(packet); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	reply := make([]byte, 512)
	n, err := conn.Read(reply)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	var response dnsmessage.Message
	if err := response.Unpack(reply[:n]); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	for _, record := range response.Answers {
		a, is := record.Body.(*dnsmessage.AResource)
		if is && response.ID == query.ID && netip.AddrFrom4(a.A).String() == address {
			return nil
		}
	}
	return fmt.Errorf("%s: %s, %v", where, response.RCode, response.Answers)
}

// servers are the Deployments that have endpoints now.
func (l *lookups) servers() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(map[string]bool)
	for _, e := range l.endpoints {
		found[deploymentOf(e.Pod)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// since describes the lookups since the last call, and resets the counts.
func (l *lookups) since() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts
	l.counts = counts{}
	return c
}

func (c counts) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d lookups, %d lost", c.sent, c.lost)
	for _, name := range slices.Sorted(maps.Keys(c.answered)) {
		fmt.Fprintf(&text, ", %d answered by %s", c.answered[name], name)
	}
	return text.String()
}

// failures are why lookups were lost since the last call.
func (l *lookups) failures() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost
	l.lost = nil
	return lost
}

// awaitAnswers waits until a Deployment has answered that many lookups since the last
// call of since.
func (l *lookups) awaitAnswers(t *testing.T, name string, enough int) {
	t.Helper()
	awaitNothing(t, func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		if got := l.counts.answered[name]; got < enough {
			return fmt.Sprintf("%s answered %d lookups, want %d", name, got, enough)
		}
		return ""
	})
}

// awaitServers waits until these Deployments have endpoints, and no others.
func (l *lookups) awaitServers(t *testing.T, names ...string) {
	t.Helper()
	awaitNothing(t, func() string {
		if got := l.servers(); !slices.Equal(got, names) {
			return fmt.Sprintf("endpoints of kube-dns are of %v, want %v", got, names)
		}
		return ""
	})
}
