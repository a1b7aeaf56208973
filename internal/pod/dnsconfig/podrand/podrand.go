// Package podrand generates random DNS settings of Pods and nodes, for tests.
package podrand

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// Pick returns a random element of a list.
func Pick[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

// Several returns up to n random elements of a list, with duplicates.
func Several[T any](random *rand.Rand, n int, list ...T) []T {
	var picked []T
	for range random.IntN(n + 1) {
		picked = append(picked, Pick(random, list...))
	}
	return picked
}

// Searches returns a few search domains, or many, or long ones.
func Searches(random *rand.Rand) []string {
	list := Several(random, 4, "foo.com", "cluster.local", "svc.cluster.local", "shop.svc.cluster.local",
		"corp.example.", ".", "a_b.example")
	for i := range Pick(random, 0, 0, 0, 40) {
		list = append(list, fmt.Sprintf("n%d.example", random.IntN(i+20)))
	}
	for range Pick(random, 0, 0, 0, 12) {
		list = append(list, strings.Repeat(Pick(random, "x", "y", "z"), 200+random.IntN(56)))
	}
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// Addrs parses IP addresses, and panics if one is invalid.
func Addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}
