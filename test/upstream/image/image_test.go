package image

import "testing"

func TestFind(t *testing.T) {
	t.Parallel()
	store := Store{"pause": {Name: "pause"}}
	for reference, want := range map[string]bool{
		"pause": true, "pause:3.10": true, "registry.k8s.io/pause:3.10": true, "localhost:5000/pause": true,
		"registry.k8s.io/pause:3.10@sha256:0123": true, "registry.k8s.io/pauses:3.10": false, "": false,
	} {
		if _, got := store.Find(reference); got != want {
			t.Errorf("Find(%q) reports %t, want %t", reference, got, want)
		}
	}
}
