// Package podrand makes what Pods and nodes may say of DNS by chance, for tests.
package podrand

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// Pick is one of a list.
func Pick[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

// Several are up to n picks, with duplicates.
func Several[T any](random *rand.Rand, n int, list ...T) []T {
	var picked []T
	for range random.IntN(n + 1) {
		picked = append(picked, Pick(random, list...))
	}
	return picked
}

// Searches are few domains, or many, or long ones.
func Searches(random *rand.Rand) []string {
	list := Several(random, 4, "foo.com", "cluster.local", "svc.cluster.local", "shop.svc.cluster.local", "corp.example.", ".", "a_b.example")
	for i := range Pick(random, 0, 0, 0, 40) {
		list = append(list, fmt.Sprintf("n%d.example", random.IntN(i+20)))
	}
	for range Pick(random, 0, 0, 0, 12) {
		list = append(list, strings.Repeat(Pick(random, "x", "y", "z"), 200+random.IntN(56)))
	}
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// Addrs are addresses in texts, which are some.
func Addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}
