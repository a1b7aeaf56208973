package cluster

import "testing"

// TestEveryKind checks that each Kind constant has a table, and that the table
// says the same of the kind as its objects.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		if tables[k] == nil {
			t.Fatalf("kind %d has no table, see kind.go", k)
		}
		if got := k.New().Ref().Kind; got != k {
			t.Errorf("%s.New().Ref().Kind = %s, want %s", k, got, k)
		}
		if got, ok := KindOf(k.String()); !ok || got != k {
			t.Errorf("KindOf(%q) = %s, %t; want %s", k.String(), got, ok, k)
		}
		store := NewStore()
		feed := store.Subscribe()
		store.Update(func(tx *Tx) {
			tx.SetFreshness(Live, Kinds()...)
			tx.Put(k.New())
		})
		ref := k.New().Ref()
		store.View(func(v *View) {
			if o := v.Object(ref.Kind, ref.Key); o == nil || o.Ref() != ref || v.Len(k) != 1 {
				t.Errorf("after Put: Object(%s) = %v, Len = %d; want the object, 1", ref, o, v.Len(k))
			}
		})
		if changes := feed.Pending(); changes.Objects == nil && k != KindEndpointSlice { // this one belongs to no Service
			t.Errorf("after Put of %s: no change is pending", ref)
		}
		store.Update(func(tx *Tx) {
			tx.Put(k.New())
			tx.Delete(ref.Kind, ref.Key)
			if n := tx.Len(k); n != 0 {
				t.Errorf("after Delete(%s): Len = %d, want 0", ref, n)
			}
		})
	}
	if _, ok := KindOf("Widget"); ok {
		t.Error(`KindOf("Widget"): ok, want a kind that is not in the model`)
	}
}

// TestIndexOfSeveralKeys checks an index by which an object is found at more than
// one key.
func TestIndexOfSeveralKeys(t *testing.T) {
	t.Parallel()
	// A table of its own: indexes of the package's tables are declared at start.
	pods := &Table[*Pod]{schema: Pods.schema}
	byLabel := declareIndex(pods, func(p *Pod, keys []string) []string {
		for k, v := range p.Labels {
			keys = append(keys, k+"="+v, k) // the key alone, too
		}
		return keys
	})
	store := NewStore()
	store.state.rows[KindPod] = pods.newRows()
	key := func(name string) Key { return Key{"shop", name} }
	store.Update(func(tx *Tx) {
		for _, name := range []string{"b", "a", "c"} {
			pods.put(tx, &Pod{Key: key(name), Labels: map[string]string{"app": name}})
		}
		pods.put(tx, &Pod{Key: key("c"), Labels: map[string]string{"app": "a"}})
		pods.remove(tx, key("b"))
	})
	store.View(func(v *View) {
		for k, want := range map[string][]string{"app=a": {"a", "c"}, "app=b": nil, "app=c": nil, "app": {"a", "c"}} {
			var got []string
			for _, p := range byLabel.Get(v, k) {
				got = append(got, p.Name)
			}
			if len(got) != len(want) || len(want) == 2 && (got[0] != want[0] || got[1] != want[1]) {
				t.Errorf("Get(%q) = %v, want %v", k, got, want)
			}
		}
	})
}
