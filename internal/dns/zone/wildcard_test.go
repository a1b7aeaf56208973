package zone_test

import (
	"fmt"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// TestWildcardWhileDataChanges checks that names below a wildcard always have an answer
// while names are added and deleted: the wildcard's, their own, or that they have none
// of the type.
func TestWildcardWhileDataChanges(t *testing.T) {
	t.Parallel()
	db, err := zone.NewWithWildcards(nil, []dnswire.SOA{soa("example", 1)})
	if err != nil {
		t.Fatal(err)
	}
	set(db, "*.example", addrs("192.0.2.1"))
	const names = 2000
	var add, remove zone.Changes
	for i := range names {
		for _, form := range []string{"n%d.example", "a.b.m%d.example"} {
			base := fmt.Sprintf(form, i)
			add.Subtrees = append(add.Subtrees, change(base, addrs("192.0.2.2")))
			remove.Subtrees = append(remove.Subtrees, zone.Change{Base: dnsname.MustParse(base)})
		}
	}
	i := 0
	watch(func() {
		i = (i + 7) % names
		for _, form := range []string{"n%d.example", "a.b.m%d.example"} {
			name := fmt.Sprintf(form, i)
			if a := lookup(db, name, dnswire.TypeA); a.Outcome != zone.Found {
				t.Errorf("Lookup(%s) = %v, want Found", name, a.Outcome)
			}
		}
		for _, form := range []string{"b.m%d.example", "m%d.example"} {
			name := fmt.Sprintf(form, i)
			if a := lookup(db, name, dnswire.TypeA); a.Outcome != zone.Found && a.Outcome != zone.NoData {
				t.Errorf("Lookup(%s) = %v, want Found or NoData", name, a.Outcome)
			}
		}
	}, func() {
		for range 20 {
			db.Apply(add)
			db.Apply(remove)
		}
	})
}
