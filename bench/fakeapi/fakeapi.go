// Package fakeapi is a Kubernetes API server for measurements that costs almost
// nothing: each event is encoded once, in protobuf, however many clients receive it. The
// server for tests, internal/kube/apitest, follows the API's conventions instead and
// encodes for each client what it selects; it would cost more than what is measured.
package fakeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/support/testcert"
)

// Server stores events in their encoded form. It supports lists of all objects and
// watches, with initial objects (WatchList) or without, of all objects or the one that a field selector names, in
// protobuf; custom resources in JSON. Watches get bookmarks.
type Server struct {
	http http.Server
	url  string
	ca   []byte // PEM, of a server over TLS

	mu      sync.Mutex
	version int
	kinds   map[string]*kind // by resource, as in URLs
}

// kind has the objects of one kind and its watches.
type kind struct {
	example Object
	list    runtime.Object // without items
	codec   codec
	objects map[string]*stored             // by name
	watches map[http.ResponseWriter]string // with the only name that is watched; "" for all
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

// New starts a Server over plain HTTP/1.1 with the whole cluster.
func New(c *synthetic.Cluster) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := newServer()
	f.url = "http://" + listener.Addr().String()
	go func() { _ = f.http.Serve(listener) }() // until Close
	return f, f.fill(c)
}

// NewSecure starts an empty Server over TLS and HTTP/2, which has clients with many watches use few connections, as an
// API server does.
func NewSecure() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	const day = 24 * time.Hour
	c, err := testcert.New("fake", time.Now().Add(day/2))
	if err != nil {
		return nil, err
	}
	const streams = 100 // as API servers have
	f := newServer()
	f.url = "https://" + listener.Addr().String()
	f.ca, _ = c.PEM()
	f.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{c.TLS}}
	f.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	go func() { _ = f.http.ServeTLS(listener, "", "") }() // until Close
	return f, nil
}

func newServer() *Server {
	f := &Server{kinds: make(map[string]*kind)}
	for resource, k := range map[string]kind{
		"secrets":         {example: &corev1.Secret{}, list: &corev1.SecretList{}},
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
		k.objects, k.watches = make(map[string]*stored), make(map[http.ResponseWriter]string)
	}
	f.http.Handler = http.HandlerFunc(f.serve)
	return f
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
	for w, only := range k.watches {
		if only == "" || only == o.GetName() {
			send(w, sent)
		}
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
		f.sendOne(w, r)
		return
	}
	query := r.URL.Query()
	only := strings.TrimPrefix(query.Get("fieldSelector"), metav1.ObjectNameField+"=")
	if query.Get("watch") != "true" {
		f.sendList(w, k, only)
		return
	}
	w.Header().Set("Content-Type", k.codec.contentType+";stream=watch")
	after, _ := strconv.Atoi(query.Get("resourceVersion"))
	asked := watchOptions{only: only, after: after, all: query.Get("sendInitialEvents") == "true"}
	if err := f.begin(w, k, asked); err != nil {
		return
	}
	for bookmarks := time.Tick(time.Minute); ; {
		select {
		case <-r.Context().Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(k.watches, w)
			return
		case <-bookmarks:
			f.mu.Lock()
			if frame, err := f.bookmark(k, nil); err == nil {
				send(w, frame)
			}
			f.mu.Unlock()
		}
	}
}

// named returns the objects of a name, or all, ordered by name. It needs mu.
func (k *kind) named(only string) (all []*stored) {
	names := slices.Collect(maps.Keys(k.objects))
	names = slices.DeleteFunc(names, func(name string) bool { return only != "" && path.Base(name) != only })
	slices.Sort(names)
	for _, name := range names {
		all = append(all, k.objects[name])
	}
	return all
}

func (f *Server) sendList(w http.ResponseWriter, k *kind, only string) {
	f.mu.Lock()
	var items []runtime.Object
	for _, o := range k.named(only) {
		items = append(items, o.object)
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

// sendOne sends an object by its name.
func (f *Server) sendOne(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resource, name := path.Split(r.URL.Path)
	k := f.kinds[path.Base(resource)]
	if k == nil || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}
	all := k.named(name)
	if len(all) == 0 {
		http.NotFound(w, r)
		return
	}
	var body bytes.Buffer
	if err := k.codec.encoder.Encode(all[0].object, &body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", k.codec.contentType)
	_, _ = w.Write(body.Bytes()) // the client may have gone
}

// watchOptions are what a watch asks for.
type watchOptions struct {
	only  string // name; "" for all
	after int    // version
	all   bool   // whatever their version, and then a bookmark
}

// begin sends the objects that changed after a version, or all and then a bookmark, and registers the watch for later
// changes.
func (f *Server) begin(w http.ResponseWriter, k *kind, asked watchOptions) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range k.named(asked.only) {
		if asked.all || o.version > asked.after {
			if _, err := w.Write(o.event); err != nil {
				return err
			}
		}
	}
	if asked.all {
		frame, err := f.bookmark(k, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		if err != nil {
			return err
		}
		_, _ = w.Write(frame) // the client may have gone
	}
	w.(http.Flusher).Flush()
	k.watches[w] = asked.only
	return nil
}

// bookmark returns a bookmark of the present version. It needs mu.
func (f *Server) bookmark(k *kind, annotations map[string]string) ([]byte, error) {
	mark := k.example.DeepCopyObject().(Object)
	mark.SetResourceVersion(strconv.Itoa(f.version))
	mark.SetAnnotations(annotations)
	return k.codec.event(watch.Bookmark, mark)
}

// Kubeconfig writes a kubeconfig file for the server.
func (f *Server) Kubeconfig(file string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: fake, cluster: {server: %q, certificate-authority-data: %q}}]
contexts: [{name: fake, context: {cluster: fake, user: fake}}]
users: [{name: fake, user: {}}]
current-context: fake
`, f.url, base64.StdEncoding.EncodeToString(f.ca)), 0o600)
}
