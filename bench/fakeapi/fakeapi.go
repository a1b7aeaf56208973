// Package fakeapi is a Kubernetes API server for measurements that costs almost
// nothing: each event is encoded once, in protobuf, however many clients receive it. The
// server for tests, internal/kube/apitest, follows the API's conventions instead and
// encodes for each client what it selects; it would cost more than what is measured.
package fakeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/bench/synthetic"
)

// Server stores events in their encoded form. It supports lists of all objects and
// watches, with initial objects (WatchList) or without, in protobuf over plain HTTP; custom resources in JSON.
type Server struct {
	http http.Server
	url  string

	mu      sync.Mutex
	version int
	kinds   map[string]*kind // by resource, as in URLs
}

// kind has the objects of one kind and its watches.
type kind struct {
	example Object
	list    runtime.Object // without items
	codec   codec
	objects map[string]*stored // by name
	watches map[http.ResponseWriter]struct{}
}

// stored is an object with its last event.
type stored struct {
	object  Object
	version int
	event   []byte
}

// Object is an object of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// New starts a Server with the whole cluster.
func New(c *synthetic.Cluster) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &Server{url: "http://" + listener.Addr().String(), kinds: make(map[string]*kind)}
	for resource, k := range map[string]kind{
		"namespaces":      {example: &corev1.Namespace{}, list: &corev1.NamespaceList{}},
		"services":        {example: &corev1.Service{}, list: &corev1.ServiceList{}},
		"endpointslices":  {example: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{}},
		"pods":            {example: &corev1.Pod{}, list: &corev1.PodList{}},
		"nodes":           {example: &corev1.Node{}, list: &corev1.NodeList{}},
		"servicecidrs":    {example: &networkingv1.ServiceCIDR{}, list: &networkingv1.ServiceCIDRList{}},
		"networkpolicies": {example: &networkingv1.NetworkPolicy{}, list: &networkingv1.NetworkPolicyList{}},
		"ingresses":       {example: &networkingv1.Ingress{}, list: &networkingv1.IngressList{}},
		"ingressclasses":  {example: &networkingv1.IngressClass{}, list: &networkingv1.IngressClassList{}},
	} {
		k.codec = protobufCodec
		f.kinds[resource] = &k
	}
	for resource, k := range map[string]kind{
		"gatewayclasses":  {example: &gatewayv1.GatewayClass{}, list: &gatewayv1.GatewayClassList{}},
		"gateways":        {example: &gatewayv1.Gateway{}, list: &gatewayv1.GatewayList{}},
		"listenersets":    {example: &gatewayv1.ListenerSet{}, list: &gatewayv1.ListenerSetList{}},
		"httproutes":      {example: &gatewayv1.HTTPRoute{}, list: &gatewayv1.HTTPRouteList{}},
		"referencegrants": {example: &gatewayv1.ReferenceGrant{}, list: &gatewayv1.ReferenceGrantList{}},
	} {
		k.codec = jsonCodec
		f.kinds[resource] = &k
	}
	for _, k := range f.kinds {
		k.objects, k.watches = make(map[string]*stored), make(map[http.ResponseWriter]struct{})
	}
	f.http.Handler = http.HandlerFunc(f.serve)
	go func() { _ = f.http.Serve(listener) }() // until Close
	return f, f.fill(c)
}

// Close closes the server.
func (f *Server) Close() error { return f.http.Close() }

func (f *Server) fill(c *synthetic.Cluster) error {
	for o := range c.AllNamespaces() {
		if err := f.write("namespaces", watch.Added, o); err != nil {
			return err
		}
	}
	for o := range c.AllServices() {
		if err := f.write("services", watch.Added, o); err != nil {
			return err
		}
	}
	for o := range c.AllSlices() {
		if err := f.write("endpointslices", watch.Added, o); err != nil {
			return err
		}
	}
	for i := range c.Pods {
		if err := f.write("pods", watch.Added, c.Pod(i)); err != nil {
			return err
		}
	}
	return nil
}

// Frame is an encoded change of an EndpointSlice.
type Frame []byte

// Encode returns the Frame of a change.
func (f *Server) Encode(o *discoveryv1.EndpointSlice) (Frame, error) {
	f.mu.Lock()
	f.version++
	o.SetResourceVersion(strconv.Itoa(f.version))
	f.mu.Unlock()
	return protobufCodec.event(watch.Modified, o)
}

// Send sends changes together to all watches of EndpointSlices, as an API server does
// with simultaneous changes. Lists do not show them.
func (f *Server) Send(changes []Frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.kinds["endpointslices"].watches {
		for _, frame := range changes {
			_, _ = w.Write(frame) // the context ends when the client is gone
		}
		w.(http.Flusher).Flush()
	}
}

// Create adds an object of a resource, which is named as in URLs.
func (f *Server) Create(resource string, o Object) error { return f.write(resource, watch.Added, o) }

// Change replaces an object of a resource. It returns when the change was sent to all watches.
func (f *Server) Change(resource string, o Object) error { return f.write(resource, watch.Modified, o) }

// Delete deletes an object of a resource. Watches that begin later do not show it.
func (f *Server) Delete(resource string, o Object) error { return f.write(resource, watch.Deleted, o) }

// Put is a synthetic.Put. It returns when the change was sent to all watches.
func (f *Server) Put(_ context.Context, o *discoveryv1.EndpointSlice) error {
	return f.write("endpointslices", watch.Modified, o)
}

func (f *Server) write(resource string, event watch.EventType, o Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	o.SetResourceVersion(strconv.Itoa(f.version))
	k := f.kinds[resource]
	sent, err := k.codec.event(event, o)
	if err != nil {
		return err
	}
	if name := o.GetNamespace() + "/" + o.GetName(); event == watch.Deleted {
		delete(k.objects, name)
	} else {
		k.objects[name] = &stored{o, f.version, sent}
	}
	for w := range k.watches {
		send(w, sent)
	}
	return nil
}

// send sends a frame to a watch. The watch's context ends when the client is gone.
func send(w http.ResponseWriter, frame []byte) {
	_, _ = w.Write(frame)
	w.(http.Flusher).Flush()
}

func (f *Server) serve(w http.ResponseWriter, r *http.Request) {
	k := f.kinds[path.Base(r.URL.Path)]
	if k == nil {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	if query.Get("watch") != "true" {
		f.sendList(w, k)
		return
	}
	w.Header().Set("Content-Type", k.codec.contentType+";stream=watch")
	after, _ := strconv.Atoi(query.Get("resourceVersion"))
	if err := f.begin(w, k, after, query.Get("sendInitialEvents") == "true"); err != nil {
		return
	}
	<-r.Context().Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(k.watches, w)
}

func (f *Server) sendList(w http.ResponseWriter, k *kind) {
	f.mu.Lock()
	var items []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(k.objects)) {
		items = append(items, k.objects[name].object)
	}
	list := k.list.DeepCopyObject()
	list.(metav1.ListInterface).SetResourceVersion(strconv.Itoa(f.version))
	f.mu.Unlock()
	var body bytes.Buffer
	if err := errors.Join(meta.SetList(list, items), k.codec.encoder.Encode(list, &body)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", k.codec.contentType)
	_, _ = w.Write(body.Bytes()) // the client may have gone
}

// begin sends the objects that changed after a version, ordered by name, and registers
// the watch for later changes. With all, it sends every object and then a bookmark.
func (f *Server) begin(w http.ResponseWriter, k *kind, after int, all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.objects)) {
		if o := k.objects[name]; all || o.version > after {
			if _, err := w.Write(o.event); err != nil {
				return err
			}
		}
	}
	if all {
		end := k.example.DeepCopyObject().(Object)
		end.SetResourceVersion(strconv.Itoa(f.version))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		bookmark, err := k.codec.event(watch.Bookmark, end)
		if err != nil {
			return err
		}
		_, _ = w.Write(bookmark) // the client may have gone
	}
	w.(http.Flusher).Flush()
	k.watches[w] = struct{}{}
	return nil
}

// Kubeconfig writes a kubeconfig file for the server.
func (f *Server) Kubeconfig(file string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: fake, cluster: {server: %q}}]
contexts: [{name: fake, context: {cluster: fake, user: fake}}]
users: [{name: fake, user: {}}]
current-context: fake
`, f.url), 0o600)
}
