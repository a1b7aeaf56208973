package endpointslices

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// deal makes it the same each time which of the slices that were written has
// which of the endpoints that are new: the library deals them out in no order. No
// slice gets more or fewer of them, and each group of slices with the same ports
// and family keeps what it has. The slices come in an order that depends on
// nothing else: those with names by name, then the new by group, full ones first.
func deal(existing, written []*discoveryv1.EndpointSlice) {
	if len(written) < 2 {
		return
	}
	groups := make(map[*discoveryv1.EndpointSlice]string, len(written))
	for _, s := range written {
		groups[s] = group(s)
	}
	slices.SortStableFunc(written, func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(cmp.Compare(groups[a], groups[b]), compareNamed(a, b), cmp.Compare(len(b.Endpoints), len(a.Endpoints)))
	})
	for first := 0; first < len(written); {
		end := first + 1
		for end < len(written) && groups[written[end]] == groups[written[first]] {
			end++
		}
		dealGroup(existing, written[first:end])
		first = end
	}
}

// group is the same for slices of the same family and ports.
func group(s *discoveryv1.EndpointSlice) string {
	var b strings.Builder
	b.WriteString(string(s.AddressType))
	for _, p := range s.Ports {
		fmt.Fprintf(&b, " %q %q %d", *p.Name, *p.Protocol, *p.Port)
		if p.AppProtocol != nil {
			fmt.Fprintf(&b, " %q", *p.AppProtocol)
		}
	}
	return b.String()
}

// compareNamed orders slices with names by these, before those without.
func compareNamed(a, b *discoveryv1.EndpointSlice) int {
	if (a.Name == "") != (b.Name == "") {
		return cmp.Compare(b.Name, a.Name)
	}
	return cmp.Compare(a.Name, b.Name)
}

// dealGroup deals out what is new to slices of one group.
func dealGroup(existing, written []*discoveryv1.EndpointSlice) {
	if len(written) < 2 {
		return
	}
	var places []*discoveryv1.Endpoint
	var fresh []discoveryv1.Endpoint
	for _, s := range written {
		before := previous(existing, s.Name)
		for i := range s.Endpoints {
			if _, old := find(before, s.Endpoints[i].TargetRef.Name); !old {
				places = append(places, &s.Endpoints[i])
				fresh = append(fresh, s.Endpoints[i])
			}
		}
	}
	slices.SortFunc(fresh, compareEndpoints)
	for i, place := range places {
		*place = fresh[i]
	}
	for _, s := range written {
		slices.SortFunc(s.Endpoints, compareEndpoints)
	}
}

// previous are the endpoints of the slice of that name.
func previous(existing []*discoveryv1.EndpointSlice, name string) []discoveryv1.Endpoint {
	for _, s := range existing {
		if s.Name == name {
			return s.Endpoints
		}
	}
	return nil
}

// find is where the endpoint of a Pod is, or would be, among those of a slice.
func find(endpoints []discoveryv1.Endpoint, pod string) (int, bool) {
	return slices.BinarySearchFunc(endpoints, pod, func(e discoveryv1.Endpoint, pod string) int {
		return cmp.Compare(e.TargetRef.Name, pod)
	})
}
