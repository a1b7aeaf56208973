package localzone_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/zone"
)

// TestLookupAsSpecified compares lookups in random zones with the algorithm of RFC 1034,
// section 4.3.2, as RFC 4592, section 2.2.1, amends it, word by word.
func TestLookupAsSpecified(t *testing.T) {
	t.Parallel()
	const seeds = 3000
	valid, seen := 0, make(map[string]int)
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		records := randomRecords(r)
		text := strings.Join(records, "\n")
		apex := dnsname.MustParse("z")
		zones, err := localzone.New(localzone.Config{Sources: []localzone.Source{{Apex: apex, Text: text + "\n", TTL: 1}}}, nil)
		if err != nil {
			continue // it has an alias beside other records, or such
		}
		valid++
		db, err := zone.NewWithWildcards(nil, zones.SOAs())
		if err != nil {
			t.Fatal(err)
		}
		zones.Publish(db)
		o := newOracle(records)
		for range 20 {
			name, qtype := randomName(r, 4), []string{"A", "TXT", "NS", "CNAME"}[r.IntN(4)]
			typ, err := dnswire.ParseType(qtype)
			if err != nil {
				t.Fatal(err)
			}
			a := db.Lookup(new(zone.Scratch), []byte(dnsname.MustParse(name).WireLabels()), typ)
			if got, want := outcomes[a.Outcome], o.answer(name, qtype); got != want {
				t.Fatalf("seed %d: Lookup(%s, %s) = %s, want %s in the zone\n%s", seed, name, qtype, got, want, text)
			}
			seen[outcomes[a.Outcome]]++
		}
	}
	if valid < seeds/4 || len(seen) != len(outcomes) {
		t.Errorf("%d of %d zones are valid, and the outcomes are %v; want more", valid, seeds, seen)
	}
}

var outcomes = map[zone.Outcome]string{
	zone.Found: "found", zone.Alias: "alias", zone.NoData: "no data", zone.NXDomain: "denied", zone.Referral: "referral",
}

// randomName returns a name below z of up to n labels.
func randomName(r *rand.Rand, n int) string {
	name := "z"
	for range r.IntN(n + 1) {
		name = []string{"a", "b", "c", "*"}[r.IntN(4)] + "." + name
	}
	return name
}

func randomRecords(r *rand.Rand) (records []string) {
	for range 1 + r.IntN(7) {
		name := randomName(r, 3)
		data := []string{"A 192.0.2.1", "A 192.0.2.2", "TXT x", "CNAME a.z.", "NS a.b.z."}[r.IntN(5)]
		records = append(records, name+". "+data)
	}
	return records
}

// oracle is a zone as a list of the types at each name that exists.
type oracle map[string][]string

func newOracle(records []string) oracle {
	o := oracle{"z": {"SOA"}}
	for _, rec := range records {
		fields := strings.Fields(rec)
		name := strings.TrimSuffix(fields[0], ".")
		o[name] = append(o[name], fields[1])
		for at := parent(name); at != ""; at = parent(at) { // empty non-terminals
			o[at] = append(o[at], []string{}...)
		}
	}
	return o
}

func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}

// answer follows the labels of a name down from the apex.
func (o oracle) answer(name, qtype string) string {
	labels := strings.Split(name, ".")
	for i := range slices.Backward(labels) {
		at := strings.Join(labels[i:], ".")
		types, exists := o[at]
		switch {
		case !exists:
			wildcard, ok := o["*."+parent(at)]
			if !ok {
				return "denied"
			}
			return match(wildcard, qtype)
		case at != "z" && slices.Contains(types, "NS"):
			return "referral"
		case i == 0:
			return match(types, qtype)
		}
	}
	panic(name + " is not in the zone")
}

func match(types []string, qtype string) string {
	switch {
	case slices.Contains(types, qtype):
		return "found"
	case slices.Contains(types, "CNAME"):
		return "alias"
	}
	return "no data"
}
