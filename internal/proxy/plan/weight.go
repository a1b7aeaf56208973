package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
)

// DefaultWeight is the weight of endpoints in slices that do not say so.
const DefaultWeight = 100

// mostShares is how many slots the heaviest endpoints have, if weights are not such that fewer
// are exact.
const mostShares = 16

// ParseWeight returns the weight that the value of cluster.AnnotationEndpointWeight gives; empty is
// the default. Its error names the value and those that are allowed.
func ParseWeight(text string) (weight int, err error) {
	const most = 1000
	if text == "" {
		return DefaultWeight, nil
	}
	weight, err = strconv.Atoi(text)
	if err != nil || weight < 0 || weight > most {
		return DefaultWeight, fmt.Errorf("%q is not a number from 0 to %d", text, most)
	}
	return weight, nil
}

// weightOf returns the weight of the endpoints of a slice. One that is invalid is the default.
func weightOf(s *cluster.EndpointSlice) int {
	weight, _ := ParseWeight(s.EndpointWeight())
	return weight
}

// weighted returns the addresses of endpoints that get connections, and how many slots each has:
// nil if all have one. These are in the proportion of the weights or, if that takes more than
// mostShares for one, rounded.
func weighted(all []endpoint) (list []netip.AddrPort, shares []uint8) {
	most := 0
	for i := range all {
		most = max(most, all[i].weight)
	}
	if most > 0 {
		all = filter(all, func(e *endpoint) bool { return e.weight > 0 })
	}
	list = addresses(all)
	if len(all) == 0 || !slices.ContainsFunc(all, func(e endpoint) bool { return e.weight != all[0].weight }) {
		return list, nil
	}
	unit := all[0].weight
	for i := range all {
		unit = divisor(unit, all[i].weight)
	}
	slots := min(most/unit, mostShares)
	for i := range all {
		shares = append(shares, uint8(max(1, (all[i].weight*slots+most/2)/most)))
	}
	return list, shares
}

// divisor returns the greatest common divisor of two numbers.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
