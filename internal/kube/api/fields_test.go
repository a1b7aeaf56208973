package api

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
)

// message is what all objects of the API are in protobuf.
type message interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// fill makes random objects whose fields are mostly set, and often valid.
func fill(seed uint64) *randfill.Filler {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	address := func() string { return pick("10.0.0.1", "10.0.0.2", "fd00::1") }
	return randfill.NewWithSeed(int64(seed)).NilChance(0.2).NumElements(0, 2).MaxDepth(12).Funcs(
		func(s *string, _ randfill.Continue) {
			*s = pick("web", "shop", "a-1", "b", "c", "d", "e", "true", "db.x", "")
		},
		func(n *int32, _ randfill.Continue) { *n = 1 + r.Int32N(100) },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(m)
			m.Labels = map[string]string{discoveryv1.LabelServiceName: pick("web", "db")}
			m.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-07-01T12:00:00Z"}
		},
		func(ref *corev1.ObjectReference, c randfill.Continue) { c.FillNoCustom(ref); ref.Kind = "Pod" },
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Unix(int64(r.Int32()), 0) },
		func(p *corev1.Protocol, _ randfill.Continue) { *p = corev1.Protocol(pick("TCP", "UDP", "")) },
		func(t *corev1.ServiceType, _ randfill.Continue) {
			*t = corev1.ServiceType(pick("ClusterIP", "ExternalName"))
		},
		func(t *discoveryv1.AddressType, _ randfill.Continue) {
			*t = discoveryv1.AddressType(pick("IPv4", "IPv6", "FQDN"))
		},
		func(p *corev1.PodPhase, _ randfill.Continue) { *p = corev1.PodPhase(pick("Running", "Failed")) },
		func(ip *corev1.PodIP, _ randfill.Continue) { ip.IP = address() },
		func(a *corev1.NodeAddress, _ randfill.Continue) { a.Address = address() },
		func(e *discoveryv1.Endpoint, c randfill.Continue) {
			c.FillNoCustom(e)
			e.Addresses = []string{address()}
		},
		func(s *corev1.ServiceSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			s.ClusterIP = pick("10.0.0.1", "None", "")
			s.ClusterIPs, s.IPFamilies = []string{s.ClusterIP}, []corev1.IPFamily{"IPv6"}[r.IntN(2):]
			if r.IntN(4) == 0 {
				s.ClusterIPs = nil
			}
		},
		func(s *corev1.PodStatus, c randfill.Continue) { c.FillNoCustom(s); s.PodIP = address() },
	)
}

// TestCutFields checks that removing unused fields does not change the converted object.
func TestCutFields(t *testing.T) {
	const seeds = 500
	for _, r := range resourcesOfNames() {
		good := 0
		for seed := range uint64(seeds) {
			object := newMessage(r)
			fill(seed).Fill(object)
			wire, err := object.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			cfg := &Config{Detail: []Detail{ForPodNames, ForNames}[seed%2]}
			want := r.convert(object, cfg)
			cut, err := cfg.kept()[r.Model.String()].cut(bytes.Clone(wire))
			if err != nil {
				t.Fatalf("%s, seed %d: cut: %v", r.Model, seed, err)
			}
			again := newMessage(r)
			if err := again.Unmarshal(cut); err != nil {
				t.Fatalf("%s, seed %d: what is left can't be decoded: %v", r.Model, seed, err)
			}
			got := r.convert(again, cfg)
			if diff := diffItems(want, got); diff != "" {
				t.Fatalf("%s, seed %d: (-whole +cut)\n%s", r.Model, seed, diff)
			}
			if again.GetResourceVersion() != object.GetResourceVersion() {
				t.Fatalf("%s, seed %d: resourceVersion is cut out", r.Model, seed)
			}
			if again.GetManagedFields() != nil || again.GetOwnerReferences() != nil {
				t.Fatalf("%s, seed %d: metadata is not cut", r.Model, seed)
			}
			if got.err == nil {
				good++
			}
		}
		if good < seeds/50 {
			t.Errorf("%s: %d of %d random objects are good, want more", r.Model, good, seeds)
		}
	}
}

func newMessage(r *resource) message {
	return r.New().(message)
}

func diffItems(want, got item) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(item{}), cmp.Comparer(sameError), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}))
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// TestCutFieldLengths checks that a length is encoded in as many octets as before, and
// that an emptied message remains.
func TestCutFieldLengths(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Message: string(make([]byte, 300)), PodIP: "10.0.0.1"}}
	wire, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]fields{"an address": {3: {6: whole}}, "nothing": {3: {31: whole}}} {
		cut, err := kept.cut(bytes.Clone(wire))
		got := new(corev1.Pod)
		if err == nil {
			err = got.Unmarshal(cut)
		}
		want := map[string]string{"an address": "10.0.0.1"}[name]
		if err != nil || got.Status.PodIP != want || got.Status.Message != "" || len(cut) == 0 {
			t.Errorf("with %s kept: %x is left, status %+v, %v", name, cut, got.Status, err)
		}
	}
}

// TestCutFieldsOfWatchEvents checks that the fields of objects in watch events are
// removed, but not those of error events.
func TestCutFieldsOfWatchEvents(t *testing.T) {
	web := service("web", "10.0.0.1")
	web.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	web.Labels = map[string]string{"app": "web"}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Message: "too old", Reason: metav1.StatusReasonExpired, Code: 410}
	for _, types := range (cuttingCodecs{codecs.WithoutConversion(), new(Config).kept()}).SupportedMediaTypes() {
		for _, object := range []runtime.Object{web, status} {
			var wire bytes.Buffer
			if err := types.Serializer.Encode(object, &wire); err != nil {
				t.Fatal(err)
			}
			got, err := runtime.Decode(types.Serializer, wire.Bytes())
			want := object.DeepCopyObject()
			if s, ok := want.(*corev1.Service); ok && types.MediaType == runtime.ContentTypeProtobuf {
				s.Labels = nil
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v, (-want +got)\n%s", types.MediaType, err, diff)
			}
		}
	}
}

// FuzzCutFields checks that any object that can be decoded converts to the same after
// its fields are removed.
func FuzzCutFields(f *testing.F) {
	for kind, r := range resourcesOfNames() {
		for seed := range uint64(4) {
			object := newMessage(r)
			fill(seed).Fill(object)
			wire, err := object.Marshal()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(kind), wire)
		}
	}
	f.Add(uint8(0), []byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, kind uint8, wire []byte) {
		all := resourcesOfNames()
		r := all[int(kind)%len(all)]
		cfg := &Config{Detail: ForPodNames}
		cut, err := cfg.kept()[r.Model.String()].cut(bytes.Clone(wire))
		before, after := newMessage(r), newMessage(r)
		if before.Unmarshal(wire) != nil || err != nil {
			return
		}
		if err := after.Unmarshal(cut); err != nil {
			t.Fatalf("%s: what is left can't be decoded: %v", r.Model, err)
		}
		if diff := diffItems(r.convert(before, cfg), r.convert(after, cfg)); diff != "" || before.GetResourceVersion() != after.GetResourceVersion() {
			t.Fatalf("%s, resourceVersion %q and %q: (-whole +cut)\n%s", r.Model, before.GetResourceVersion(), after.GetResourceVersion(), diff)
		}
	})
}
