package api

import "testing"

// TestClear: an object that is read into the memory of others before is converted
// to what it is alone, and what those were converted to stays.
func TestClear(t *testing.T) {
	const seeds = 300
	for claim, cfg := range map[string]*Config{"names": {PodNames: true}, "slices": {ForSlices: true}, "whole": {Whole: true}} {
		for _, r := range resources {
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
