package cluster

import "slices"

// Nearness is which endpoints of a Service a client uses.
type Nearness uint8

// What Nearest narrows endpoints to: none, so that all are used, or those with hints for the client's
// node or zone.
const (
	Anywhere Nearness = iota
	SameNode
	SameZone
)

// Nearest returns the ready endpoints that a client on a node is to use, by their places (KEP-2433,
// KEP-3015): if all have hints for nodes and one is for this node, then those; otherwise likewise for its
// zone; otherwise all. An empty node or zone is that of no hint.
func Nearest[T any](ready []T, place func(*T) *Place, node, zone string) (found []T, by Nearness) {
	if found := hintedFor(ready, func(e *T) []string { return place(e).HintNodes() }, node); len(found) > 0 {
		return found, SameNode
	}
	if found := hintedFor(ready, func(e *T) []string { return place(e).HintZones() }, zone); len(found) > 0 {
		return found, SameZone
	}
	return ready, Anywhere
}

// hintedFor returns those whose hints have a name; none if one has no hints. It returns all itself if these
// are all.
func hintedFor[T any](all []T, hints func(*T) []string, name string) (found []T) {
	if name == "" {
		return nil
	}
	n := 0
	for i := range all {
		of := hints(&all[i])
		if len(of) == 0 {
			return nil
		}
		if slices.Contains(of, name) {
			n++
		}
	}
	if n == len(all) {
		return all
	}
	found = make([]T, 0, n)
	for i := range all {
		if slices.Contains(hints(&all[i]), name) {
			found = append(found, all[i])
		}
	}
	return found
}
