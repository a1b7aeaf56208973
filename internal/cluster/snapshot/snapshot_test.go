package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portolan.dev/portolan/internal/cluster"
)

// model holds one object of each kind, with every field set.
func model() *cluster.Store {
	store := cluster.NewStore()
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("::/128")}
	ports := []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}
	store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Namespace{Name: "shop", Labels: map[string]string{"team": "a"}})
		tx.Put(&cluster.Service{
			Key: cluster.Key{Namespace: "shop", Name: "web"}, Headless: true, ClusterIPs: addrs, ExternalName: "x.example",
			Ports: ports, Selector: map[string]string{"app": "web"}, PublishNotReady: true, Created: 1,
			Spec: &cluster.ServiceSpec{
				Type: cluster.LoadBalancer, NodePorts: []uint16{30080}, ExternalLocal: true, ExternalIPs: addrs,
				Ingress: []cluster.IngressIP{{Addr: addrs[0], Proxy: true}}, SourceRanges: ranges, AffinitySeconds: 60,
			},
		})
		tx.Put(&cluster.EndpointSlice{
			Key: cluster.Key{Namespace: "shop", Name: "web-1"}, Service: "web", AddressType: cluster.IPv4, Ports: ports,
			Endpoints: []cluster.Endpoint{{Addr: addrs[0], Ready: true, Hostname: "a", Pod: "web-x"}, {Addr: addrs[0], Serving: true, Terminating: true}},
			Spec:      &cluster.SliceSpec{ManagedBy: "x", Places: []cluster.Place{{}, {Node: "node-1", Hints: &cluster.Hints{Zones: []string{"a"}, Nodes: []string{"node-1"}}, Additional: true}}},
		})
		tx.Put(&cluster.Pod{
			Key: cluster.Key{Namespace: "shop", Name: "web-x"}, IPs: addrs, Labels: map[string]string{"app": "web"},
			Finished: true, Deleting: true, Node: "node-1", Spec: &cluster.PodSpec{Hostname: "a", Subdomain: "web", Ports: ports},
			Unmet: []cluster.Condition{{Type: "Ready", Status: "False"}},
		})
		tx.Put(&cluster.Node{Name: "node-1", Addresses: addrs, InternalIPs: addrs, PodCIDRs: ranges, Leaving: true, Cordoned: true, WireGuardKey: [32]byte{1, 31: 2}})
		tx.Put(&cluster.ServiceCIDR{Name: "kubernetes", CIDRs: ranges})
		tx.Put(&cluster.Workload{Kind: cluster.KindJob, Key: cluster.Key{Namespace: "shop", Name: "once"}, Replicas: 1})
		tx.Put(&cluster.NetworkPolicy{Key: cluster.Key{Namespace: "shop", Name: "none"}, Egress: true})
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store
}

// contents is all that a store holds.
func contents(store *cluster.Store) (all []any) {
	store.View(func(v *cluster.View) {
		for o := range v.Namespaces() {
			all = append(all, *o)
		}
		for o := range v.Services() {
			all = append(all, *o)
		}
		for o := range v.EndpointSlices() {
			all = append(all, *o)
		}
		for o := range v.Pods() {
			all = append(all, *o)
		}
		for o := range v.Nodes() {
			all = append(all, *o)
		}
		for o := range v.Workloads(cluster.KindJob) {
			all = append(all, *o)
		}
		for o := range v.NetworkPolicies() {
			all = append(all, *o)
		}
		for o := range cluster.ServiceCIDRs.All(v) {
			all = append(all, *o)
		}
	})
	return all
}

func freshness(store *cluster.Store) map[cluster.Kind]cluster.Freshness {
	of := make(map[cluster.Kind]cluster.Freshness)
	store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			of[k] = v.Freshness(k)
		}
	})
	return of
}

func TestFileKeepsTheModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	store := model()
	if err := Of(store, 7).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	snap, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Serial != 7 || snap.Heard.IsZero() || snap.Len() != 8 {
		t.Errorf("ReadFile: serial %d, heard %v, %d objects; want 7, a time, 8", snap.Serial, snap.Heard, snap.Len())
	}
	got := cluster.NewStore()
	snap.Restore(got, cluster.Kinds())
	if d := cmp.Diff(contents(store), contents(got), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
		t.Errorf("restored: (-want +got)\n%s", d)
	}
	for k, f := range freshness(got) {
		if f != cluster.Recalled && !slices.Contains(cluster.ReferencedKinds(), k) {
			t.Errorf("restored: %s is %s, want recalled", k, f)
		}
	}
}

// TestPartsOnly: what was not loaded is not in the file, and what is not asked
// for is not restored.
func TestPartsOnly(t *testing.T) {
	store := model()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Loading, cluster.KindPod) })
	snap := Of(store, 0)
	if snap.Len() != 7 {
		t.Errorf("Of a store without Pods: %d objects, want 7", snap.Len())
	}
	got := cluster.NewStore()
	snap.Restore(got, []cluster.Kind{cluster.KindService, cluster.KindPod})
	if n := len(contents(got)); n != 1 {
		t.Errorf("Restore of Services and Pods: %d objects, want 1", n)
	}
	for k, f := range freshness(got) {
		if (f == cluster.Recalled) != (k == cluster.KindService) {
			t.Errorf("Restore of Services and Pods: %s is %s", k, f)
		}
	}
}

// TestDamage: whatever octet is changed, wherever the file ends, it is set
// aside and not used.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := Of(model(), 7).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"empty":           {},
		"another program": []byte("hello, world\n"),
		"another version": bytes.Replace(whole, []byte("snapshot 2"), []byte("snapshot 1"), 1),
		"longer":          append(slices.Clone(whole), 0),
		"only its kind":   []byte(format),
	}
	for i := 0; i < len(whole); i += 7 {
		flipped := slices.Clone(whole)
		flipped[i] ^= 0x10
		damaged["changed "+string(rune(i))] = flipped
		damaged["cut "+string(rune(i))] = whole[:i]
	}
	for claim, data := range damaged {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFile(path)
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path+".bad") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("%s: ReadFile: %v, want one line that says that it is set aside", claim, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: is still there", claim)
		}
		if kept, err := os.ReadFile(path + ".bad"); err != nil || !bytes.Equal(kept, data) {
			t.Errorf("%s: not kept aside: %v", claim, err)
		}
	}
}

func TestReadAbsent(t *testing.T) {
	if _, err := ReadFile(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadFile: %v, want that it does not exist", err)
	}
}

// TestWriteFails: the last file stays, and nothing is left behind. What a full
// disk does, a test of cmd/portolan shows.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	if err := Of(model(), 0).WriteFile(filepath.Join(dir, "is", "absent")); err == nil {
		t.Error("writing to an absent directory: no error")
	}
	blocked := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(blocked, "not empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Of(model(), 0).WriteFile(blocked); err == nil {
		t.Error("writing over a directory: no error")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSaver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		heard := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
		s := &Saver{
			Path: path, Store: store, Heard: func() time.Time { return heard }, Serial: func() uint32 { return 100 },
			Log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()

		time.Sleep(2 * Interval)
		synctest.Wait()
		if !s.Written().IsZero() {
			t.Error("written though nothing is known")
		}
		model().View(func(v *cluster.View) {
			store.Update(func(tx *cluster.Tx) {
				for o := range v.Services() {
					tx.Put(o)
				}
				tx.SetFreshness(cluster.Live, cluster.KindService)
			})
		})
		time.Sleep(Interval)
		synctest.Wait()
		wantSerial(t, path, 100+headroom)
		first := s.Written()
		time.Sleep(3 * Interval)
		synctest.Wait()
		if s.Written() != first {
			t.Error("written again though nothing changed")
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
		s.Save()
		wantSerial(t, path, 100)
		if snap, err := ReadFile(path); err != nil || !snap.Heard.Equal(heard) {
			t.Errorf("ReadFile: %+v, %v; want that it was heard at %s", snap, err, heard)
		}
	})
}

func wantSerial(t *testing.T, path string, want uint32) {
	t.Helper()
	snap, err := ReadFile(path)
	if err != nil || snap.Serial != want || snap.Len() != 1 {
		t.Errorf("ReadFile: %+v, %v; want serial %d and one object", snap, err, want)
	}
}

// TestEveryKind checks that objects of all kinds of the model are kept.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, k := range cluster.Kinds() {
			o := k.New()
			if err := json.Unmarshal([]byte(`{"Name": "web"}`), o); err != nil {
				t.Errorf("%s: %v", k, err)
			}
			tx.Put(o)
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := Of(store, 0).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	snap, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := cluster.NewStore()
	snap.Restore(got, cluster.Kinds())
	got.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			if slices.Contains(cluster.ReferencedKinds(), k) {
				if v.Len(k) > 0 || v.Freshness(k) != cluster.Loading {
					t.Errorf("restored: %d objects of the kind %s, which is %s; want none, loading", v.Len(k), k, v.Freshness(k))
				}
				continue
			}
			if v.Object(k, cluster.Key{Name: "web"}) == nil || v.Freshness(k) != cluster.Recalled {
				t.Errorf("restored: %s web is %v, and %s; want the object, recalled", k, v.Object(k, cluster.Key{Name: "web"}), v.Freshness(k))
			}
		}
	})
}

// TestSaverWithoutZones: an agent that serves no zones has a snapshot, too.
func TestSaverWithoutZones(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "snapshot")
	(&Saver{Path: file, Store: model(), Heard: time.Now, Log: slog.New(slog.DiscardHandler)}).Save()
	snap, err := ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Serial != 0 || snap.Len() == 0 {
		t.Errorf("the snapshot has the serial %d and %d objects, want 0 and some", snap.Serial, snap.Len())
	}
}
