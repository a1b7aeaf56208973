package api

import "testing"

// TestDecodeIntoReusedMemory checks that an object decoded into the memory of previous
// ones is converted as if decoded alone, and that the results of those are unchanged.
func TestDecodeIntoReusedMemory(t *testing.T) {
	const seeds = 300
	for claim, cfg := range map[string]*Config{"names": {Detail: ForPodNames}, "slices": {Detail: ForSlices}, "whole": {Detail: All}} {
		for _, r := range resources {
			if r.Custom { // comes as JSON
				continue
			}
			again := newMessage(r)
			var want, got []item
			for seed := range uint64(seeds) {
				object, alone := newMessage(r), newMessage(r)
				fill(seed).Fill(object)
				if seed%3 == 0 {
					object.SetLabels(nil)
				}
				wire, err := object.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				r.empty(again)
				for _, into := range []message{again, alone} {
					if err := into.Unmarshal(wire); err != nil {
						t.Fatal(err)
					}
				}
				want = append(want, r.convert(alone, cfg))
				got = append(got, r.convert(again, cfg))
			}
			for seed := range want {
				if diff := diffItems(want[seed], got[seed]); diff != "" {
					t.Fatalf("%s of %s, seed %d: (-alone +after others)\n%s", r.Model, claim, seed, diff)
				}
			}
		}
	}
}
