package endpointslices

import (
	"fmt"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestIndexFreesNamespaces checks that an Index retains nothing of empty Namespaces, nor
// of those that are only read.
func TestIndexFreesNamespaces(t *testing.T) {
	store, index := cluster.NewStore(), NewIndex()
	update := func(change func(tx *cluster.Tx, key cluster.Key)) {
		store.Update(func(tx *cluster.Tx) {
			tx.SetFreshness(cluster.Live, cluster.Kinds()...)
			for i := range 10 {
				change(tx, cluster.Key{Namespace: fmt.Sprintf("space-%d", i), Name: "web"})
			}
			index.Update(tx.View, tx.Changed())
		})
	}
	check := func(claim string, want int) {
		t.Helper()
		if got := len(index.namespaces); got != want {
			t.Errorf("%s: %d Namespaces remembered, want %d", claim, got, want)
		}
	}
	selector := map[string]string{"app": "web"}
	update(func(*cluster.Tx, cluster.Key) {})
	update(func(tx *cluster.Tx, key cluster.Key) {
		tx.Put(&cluster.Service{Key: key, Selector: selector})
		tx.Put(&cluster.Pod{Key: key, Labels: selector})
	})
	check("with Services and Pods", 10)
	update(func(tx *cluster.Tx, key cluster.Key) { tx.Delete(cluster.KindService, key) })
	check("with Pods", 10)
	update(func(tx *cluster.Tx, key cluster.Key) {
		tx.Delete(cluster.KindPod, key)
		tx.Put(&cluster.Service{Key: key, Selector: selector})
	})
	check("with Services", 10)
	update(func(tx *cluster.Tx, key cluster.Key) { tx.Delete(cluster.KindService, key) })
	check("with nothing", 0)
	update(func(tx *cluster.Tx, key cluster.Key) { tx.Put(&cluster.Service{Key: key}) })
	check("with Services that select nothing", 0)
	index.Pods(cluster.Key{Namespace: "space-1", Name: "web"})
	check("asked of", 0)
}
