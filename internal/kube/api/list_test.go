package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"portolan.dev/portolan/internal/cluster"
)

// services is a reading of Services that nothing answers.
func services() *reading {
	s := &Source{cfg: Config{Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler), Between: func() {}}, settling: make(chan struct{})}
	r := newReading(s, resources[1], scope{})
	s.readings = []*reading{r}
	return r
}

// encodedServices is a list of n Services as an API server sends it.
func encodedServices(tb testing.TB, n int) []byte {
	tb.Helper()
	l := &corev1.ServiceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "77"},
	}
	for i := range n {
		o := service(fmt.Sprintf("web-%d", i), "10.0.0.1")
		o.Labels = map[string]string{"app": "web"}
		o.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: int32(i + 1)}}
		l.Items = append(l.Items, *o)
	}
	scheme := runtime.NewScheme()
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(l, &b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func read(r *reading, wire []byte) (*list, error) {
	return r.readProtobuf(newProtobuf(bytes.NewReader(wire)), func() {})
}

func TestReadProtobuf(t *testing.T) {
	for _, n := range []int{0, 1, 300} {
		reading := services()
		got, err := read(reading, encodedServices(t, n))
		if err != nil || got.ResourceVersion != "77" || len(got.Items) != n {
			t.Fatalf("list of %d: %+v, %v", n, got, err)
		}
		reading.source.cfg.Store.View(func(v *cluster.View) {
			for i, listed := range got.Items {
				s := v.Service(listed.key)
				// Nothing is left over from the item before.
				if want := fmt.Sprintf("web-%d", i); s == nil || s.Name != want || len(s.Ports) != 1 || s.Ports[0].Number != uint16(i+1) {
					t.Errorf("item %d: %v: %+v", i, listed, s)
				}
			}
		})
	}
}

// TestReadIncompleteProtobuf checks that a list that ends early is an error.
func TestReadIncompleteProtobuf(t *testing.T) {
	whole := encodedServices(t, 3)
	for end := len(protobufMagic); end < len(whole); end++ {
		got, err := read(services(), whole[:end])
		if err == nil && len(got.Items) != 3 {
			t.Errorf("of %d octets the first %d: %d items and no error", len(whole), end, len(got.Items))
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first %d octets: %v, want an unexpected end", end, err)
		}
	}
}

// TestIncompleteListChangesNothing checks that an incomplete list of a loaded kind
// changes nothing, and a complete one all objects at once.
func TestIncompleteListChangesNothing(t *testing.T) {
	const n = 3 * atOnce
	r := services()
	store := r.source.cfg.Store
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindService) })
	version := store.Version()
	wire := encodedServices(t, n)
	if _, err := read(r, wire[:len(wire)-1]); !errors.Is(err, io.ErrUnexpectedEOF) || store.Version() != version {
		t.Errorf("a list that breaks off: %v; the Store changed: %v", err, store.Version() != version)
	}
	whole, err := read(r, wire)
	if err != nil || store.Version() != version {
		t.Fatalf("before Replace: %v; the Store changed: %v", err, store.Version() != version)
	}
	objects := make([]any, n)
	for i := range whole.Items {
		objects[i] = &whole.Items[i]
	}
	if err := r.Replace(objects, "77"); err != nil {
		t.Fatal(err)
	}
	store.View(func(v *cluster.View) {
		if v.Len(cluster.KindService) != n || store.Version() != version+1 {
			t.Errorf("after Replace: %d Services, in %d steps, want %d in one", v.Len(cluster.KindService), store.Version()-version, n)
		}
	})
}

func FuzzReadProtobuf(f *testing.F) {
	f.Add(encodedServices(f, 2))
	f.Add([]byte(protobufMagic))
	f.Add([]byte(protobufMagic + "\x12\x05\x12\xff\xff\xff\x7f"))
	f.Fuzz(func(_ *testing.T, wire []byte) {
		if len(wire) >= len(protobufMagic) {
			_, _ = read(services(), wire)
		}
	})
}

func newProtobuf(r io.Reader) *protobufReader { return &protobufReader{Reader: bufio.NewReader(r)} }
