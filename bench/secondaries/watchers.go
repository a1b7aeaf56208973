package secondaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// encoding is the encoding of objects.
type encoding struct{ name, list, watch string }

// encodings are those that client-go requests: protobuf if configured, as in
// Kubernetes' own programs, or else JSON.
var encodings = []encoding{
	{"protobuf", "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf;stream=watch"},
	{"JSON", "application/json", "application/json;stream=watch"},
}

// resources are watched by an agent that makes DNS records of Services, all over one
// connection.
var resources = []string{"/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/services"}

// apiWindow is the result of a measurement of the API server.
type apiWindow struct {
	took    time.Duration
	used    time.Duration // processor time of the API server
	changes float64
	// These are for all watchers: the octets on the wire, including TLS, and the octets
	// of events.
	octets, content float64
}

// apiList is the cost of a list of all objects, which each agent requests when it
// starts.
type apiList struct {
	used   time.Duration
	octets float64 // on the wire, compressed (gzip), including TLS
}

// apiResults are the results for the API server, by round.
type apiResults struct {
	alone    []apiWindow
	watchers map[string]map[int][]apiWindow // by encoding and number of watchers
	lists    map[string][]apiList           // by encoding
}

// apiWorld is a real API server.
type apiWorld struct {
	*bench
	plane  *controlplane.ControlPlane
	client *kubernetes.Clientset
	churn  *churn
}

// measureAPI measures a real API server with the same Services, EndpointSlices and
// changes.
func (b *bench) measureAPI(ctx context.Context) (r *apiResults, err error) {
	w := &apiWorld{bench: b}
	if w.plane, err = controlplane.Start(ctx, controlplane.Options{Log: b.log}); err != nil {
		return nil, err
	}
	defer w.plane.Close()
	if w.client, err = synthetic.NewClient(w.plane.RESTConfig()); err != nil {
		return nil, err
	}
	c := b.cluster(synthetic.Triple)
	b.log.Info("filling the API server", "services", b.services)
	if err := c.Create(ctx, w.client); err != nil {
		return nil, err
	}
	w.churn = &churn{cluster: c, kind: synthetic.Triple, put: w.put}
	r = &apiResults{watchers: make(map[string]map[int][]apiWindow), lists: make(map[string][]apiList)}
	for _, e := range encodings {
		r.watchers[e.name] = make(map[int][]apiWindow)
	}
	for n := range b.rounds {
		b.log.Info("measuring the API server", "round", n+1)
		if err := w.round(ctx, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// put is a synthetic.Put.
func (w *apiWorld) put(ctx context.Context, o *discoveryv1.EndpointSlice) error {
	_, err := w.client.DiscoveryV1().EndpointSlices(o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	return err
}

func (w *apiWorld) round(ctx context.Context, r *apiResults) error {
	m, err := w.measure(ctx, encoding{}, 0)
	if err != nil {
		return err
	}
	r.alone = append(r.alone, m)
	for _, e := range encodings {
		for _, n := range watcherCounts {
			if m, err = w.measure(ctx, e, n); err != nil {
				return err
			}
			r.watchers[e.name][n] = append(r.watchers[e.name][n], m)
		}
		l, err := w.measureLists(ctx, e)
		if err != nil {
			return err
		}
		r.lists[e.name] = append(r.lists[e.name], l)
	}
	return nil
}

// measure measures changes with the given number of watchers.
func (w *apiWorld) measure(ctx context.Context, e encoding, watchers int) (m apiWindow, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var traffic, content atomic.Int64
	var group errgroup.Group
	began := make(chan error, watchers*len(resources))
	for range watchers {
		client, err := w.newClient(&traffic)
		if err != nil {
			return m, err
		}
		defer client.CloseIdleConnections()
		for _, resource := range resources {
			group.Go(func() error { return w.watch(ctx, client, resource, e, &content, began) })
		}
	}
	for range watchers * len(resources) {
		if err := <-began; err != nil {
			return m, err
		}
	}
	stop := w.churn.start(ctx)
	const warm = time.Second
	time.Sleep(warm)
	look := func() (apiWindow, error) {
		used, err := rig.ProcessorTime([]int{w.plane.APIServerID()})
		return apiWindow{
			took:    time.Duration(time.Now().UnixNano()),
			used:    used,
			changes: float64(w.churn.changed.Load()),
			octets:  float64(traffic.Load()),
			content: float64(content.Load()),
		}, err
	}
	before, err := look()
	time.Sleep(w.duration)
	m, lookErr := look()
	stopErr := stop()
	cancel()
	if err = errors.Join(err, lookErr, stopErr, group.Wait()); err != nil {
		return m, err
	}
	m.took -= before.took
	m.used -= before.used
	m.octets -= before.octets
	m.content -= before.content
	m.changes -= before.changes
	return m, nil
}

// newClient returns a client with a separate connection, as each node has. It counts
// the octets received in traffic.
func (w *apiWorld) newClient(traffic *atomic.Int64) (*http.Client, error) {
	secure, err := rest.TLSConfigFor(w.plane.RESTConfig())
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: secure, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, addr)
			return &counted{c, traffic}, err
		},
	}}, nil
}

// counted counts the octets received over a connection.
type counted struct {
	net.Conn
	octets *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.octets.Add(int64(n))
	return n, err
}

// beginWatch starts a watch of a resource from the current version on.
func (w *apiWorld) beginWatch(
	ctx context.Context,
	client *http.Client,
	resource string,
	e encoding,
) (io.ReadCloser, error) {
	// The version comes from a list of one object, so that existing objects are not
	// sent.
	list, err := w.client.CoreV1().Services(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return w.get(ctx, client, resource+"?watch=true&resourceVersion="+list.ResourceVersion, e.watch)
}

// watch reads the changes of a resource until ctx is done.
func (w *apiWorld) watch(
	ctx context.Context,
	client *http.Client,
	resource string,
	e encoding,
	content *atomic.Int64,
	began chan<- error,
) error {
	body, err := w.beginWatch(ctx, client, resource, e)
	began <- err
	if err != nil {
		return err
	}
	defer body.Close()
	var buf [16 << 10]byte
	for {
		n, err := body.Read(buf[:])
		content.Add(int64(n))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch of %s: %w", resource, err)
		}
	}
}

func (w *apiWorld) get(ctx context.Context, client *http.Client, path, accept string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.plane.RESTConfig().Host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	reply, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK {
		reply.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, reply.Status)
	}
	return reply.Body, nil
}

// measureLists measures lists of all objects, one after another.
func (w *apiWorld) measureLists(ctx context.Context, e encoding) (l apiList, err error) {
	const lists = 5
	var traffic atomic.Int64
	client, err := w.newClient(&traffic)
	if err != nil {
		return l, err
	}
	defer client.CloseIdleConnections()
	before, err := rig.ProcessorTime([]int{w.plane.APIServerID()})
	if err != nil {
		return l, err
	}
	for range lists {
		for _, resource := range resources {
			body, err := w.get(ctx, client, resource+"?resourceVersion=0", e.list)
			if err != nil {
				return l, err
			}
			_, err = io.Copy(io.Discard, body)
			body.Close()
			if err != nil {
				return l, err
			}
		}
	}
	after, err := rig.ProcessorTime([]int{w.plane.APIServerID()})
	return apiList{(after - before) / lists, float64(traffic.Load()) / lists}, err
}
