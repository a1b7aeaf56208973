package main

import (
	"bytes"
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// fakeAPI is an API server that costs next to nothing: it keeps events as they
// are sent. It knows watches that begin with all objects (WatchList) and
// nothing else, in protobuf, over plain HTTP.
type fakeAPI struct {
	http http.Server
	url  string

	mu      sync.Mutex
	version int
	kinds   map[string]*kind // by resource, as in URLs
}

// kind is the objects of one kind, and who watches them.
type kind struct {
	example object
	events  map[string][]byte // that add each object, by its name
	watches map[http.ResponseWriter]struct{}
}

type object interface {
	runtime.Object
	metav1.Object
}

// newFakeAPI starts an API server that has the whole cluster.
func newFakeAPI(s sizes) (*fakeAPI, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &fakeAPI{url: "http://" + listener.Addr().String(), kinds: make(map[string]*kind)}
	for resource, example := range map[string]object{
		"namespaces": &corev1.Namespace{}, "services": &corev1.Service{}, "pods": &corev1.Pod{}, "endpointslices": &discoveryv1.EndpointSlice{},
	} {
		f.kinds[resource] = &kind{example, make(map[string][]byte), make(map[http.ResponseWriter]struct{})}
	}
	f.http.Handler = http.HandlerFunc(f.serve)
	go f.http.Serve(listener) // until Close
	return f, f.fill(s)
}

func (f *fakeAPI) Close() error { return f.http.Close() }

func (f *fakeAPI) fill(s sizes) error {
	for _, part := range []struct {
		resource string
		n        int
		object   func(int) object
	}{
		{"namespaces", s.namespaces, func(i int) object { return s.namespace(i) }},
		{"services", s.services, func(i int) object { return s.service(i) }},
		{"services", s.headless, func(i int) object { return s.headlessService(i) }},
		{"endpointslices", s.services, func(i int) object { return s.slice(i) }},
		{"endpointslices", s.headless, func(i int) object { return s.headlessSlice(i) }},
		{"pods", s.pods, func(i int) object { return s.pod(i) }},
	} {
		for i := range part.n {
			if err := f.write(part.resource, watch.Added, part.object(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// put is a putFunc. It returns when the change is on its way to all watches.
func (f *fakeAPI) put(_ context.Context, o *discoveryv1.EndpointSlice) error {
	return f.write("endpointslices", watch.Modified, o)
}

func (f *fakeAPI) write(resource string, event watch.EventType, o object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	o.SetResourceVersion(strconv.Itoa(f.version))
	frame, err := encode(event, o)
	if err != nil {
		return err
	}
	k := f.kinds[resource]
	k.events[o.GetNamespace()+"/"+o.GetName()] = frame
	for w := range k.watches {
		send(w, frame)
	}
	return nil
}

// send sends to a watch; when its client has gone, its context says so.
func send(w http.ResponseWriter, frame []byte) {
	_, _ = w.Write(frame)
	w.(http.Flusher).Flush()
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	k := f.kinds[path.Base(r.URL.Path)]
	if k == nil || r.URL.Query().Get("sendInitialEvents") != "true" {
		http.Error(w, "only watches that begin with all objects", http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	if err := f.begin(w, k); err != nil {
		return
	}
	<-r.Context().Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(k.watches, w)
}

// begin sends all objects, in the order of their names, says that these were
// all, and lets the watch have what comes.
func (f *fakeAPI) begin(w http.ResponseWriter, k *kind) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.events)) {
		if _, err := w.Write(k.events[name]); err != nil {
			return err
		}
	}
	end := k.example.DeepCopyObject().(object)
	end.SetResourceVersion(strconv.Itoa(f.version))
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	frame, err := encode(watch.Bookmark, end)
	if err != nil {
		return err
	}
	send(w, frame)
	k.watches[w] = struct{}{}
	return nil
}

// encode is one event as it is sent.
func encode(event watch.EventType, o object) ([]byte, error) {
	groups := schema.GroupVersions{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion}
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), groups)
	var raw, frame bytes.Buffer
	if err := encoder.Encode(o, &raw); err != nil {
		return nil, err
	}
	e := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw.Bytes()}}
	err := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(e, protobuf.LengthDelimitedFramer.NewFrameWriter(&frame))
	return frame.Bytes(), err
}

// kubeconfig writes a kubeconfig file for the server.
func (f *fakeAPI) kubeconfig(file string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: fake, cluster: {server: %q}}]
contexts: [{name: fake, context: {cluster: fake, user: fake}}]
users: [{name: fake, user: {}}]
current-context: fake
`, f.url), 0o600)
}
