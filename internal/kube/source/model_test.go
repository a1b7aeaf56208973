package source

import (
	"bytes"
	"encoding/json"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestWriteModelOfEveryKind checks that the dump of the model has all kinds.
func TestWriteModelOfEveryKind(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Store: cluster.NewStore(), Needs: cluster.Kinds})
	if err != nil {
		t.Fatal(err)
	}
	s.cfg.Store.Update(func(tx *cluster.Tx) {
		for _, k := range cluster.Kinds() {
			tx.Put(k.New())
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	var text bytes.Buffer
	if err := s.WriteModel(&text); err != nil {
		t.Fatal(err)
	}
	var dump struct {
		Freshness map[string]string            `json:"freshness"`
		Objects   []map[string]json.RawMessage `json:"objects"`
	}
	if err := json.Unmarshal(text.Bytes(), &dump); err != nil {
		t.Fatalf("%v in\n%s", err, text.Bytes())
	}
	count := make(map[string]int)
	for _, o := range dump.Objects {
		for kind := range o {
			count[kind]++
		}
	}
	for _, k := range cluster.Kinds() {
		if count[k.String()] != 1 || dump.Freshness[k.String()] == "" {
			t.Errorf("%s: %d objects, freshness %q; want 1, and any", k, count[k.String()], dump.Freshness[k.String()])
		}
	}
}
