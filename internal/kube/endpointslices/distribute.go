package endpointslices

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// distribute makes it deterministic which of the written slices holds which new
// endpoint, because the library distributes them in random order. Every slice keeps
// its number of endpoints, and endpoints move only between slices of the same
// family and ports. It also sorts written: by family and ports, then named slices
// by name, then new ones by descending size.
func distribute(existing, written []*discoveryv1.EndpointSlice) {
	if len(written) < 2 {
		return
	}
	groups := make(map[*discoveryv1.EndpointSlice]string, len(written))
	for _, s := range written {
		groups[s] = group(s)
	}
	slices.SortStableFunc(written, func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(cmp.Compare(groups[a], groups[b]), compareNames(a, b), cmp.Compare(len(b.Endpoints), len(a.Endpoints)))
	})
	for first := 0; first < len(written); {
		end := first + 1
		for end < len(written) && groups[written[end]] == groups[written[first]] {
			end++
		}
		distributeGroup(existing, written[first:end])
		first = end
	}
}

// group returns a text that slices of the same family and ports have in common.
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

// compareNames orders slices by name, those without a name last.
func compareNames(a, b *discoveryv1.EndpointSlice) int {
	if (a.Name == "") != (b.Name == "") {
		return cmp.Compare(b.Name, a.Name)
	}
	return cmp.Compare(a.Name, b.Name)
}

// distributeGroup distributes the new endpoints of one group by Pod name.
func distributeGroup(existing, written []*discoveryv1.EndpointSlice) {
	if len(written) < 2 {
		return
	}
	var positions []*discoveryv1.Endpoint
	var added []discoveryv1.Endpoint
	for _, s := range written {
		before := endpointsOf(existing, s.Name)
		for i := range s.Endpoints {
			if !hasPod(before, s.Endpoints[i].TargetRef.Name) {
				positions = append(positions, &s.Endpoints[i])
				added = append(added, s.Endpoints[i])
			}
		}
	}
	slices.SortFunc(added, compareEndpoints)
	for i, position := range positions {
		*position = added[i]
	}
	for _, s := range written {
		slices.SortFunc(s.Endpoints, compareEndpoints)
	}
}

// endpointsOf returns the endpoints of the slice of that name.
func endpointsOf(existing []*discoveryv1.EndpointSlice, name string) []discoveryv1.Endpoint {
	for _, s := range existing {
		if s.Name == name {
			return s.Endpoints
		}
	}
	return nil
}

// hasPod reports whether a Pod has one of these endpoints, which are sorted.
func hasPod(endpoints []discoveryv1.Endpoint, pod string) bool {
	_, found := slices.BinarySearchFunc(endpoints, pod, func(e discoveryv1.Endpoint, pod string) int {
		return cmp.Compare(e.TargetRef.Name, pod)
	})
	return found
}
