package cluster

import "cmp"

// Age is when an object was created. Where two objects claim the same, the Gateway API has the
// older one win and, of equally old ones, the first by namespace and name.
type Age struct {
	// Created is the creationTimestamp, in seconds since 1970; 0 without one, as in manifests.
	Created int64
	// File is the file of a manifest, and Index the object's place among the objects of the file,
	// from 0. They are zero for objects of the API.
	File  string
	Index int
}

// Compare returns -1 if a is older than b, 1 if it is younger, and 0 if neither is. Objects without
// creationTimestamp are as if created now, one after the other, in the order of their files' paths
// and of their places in them.
func (a Age) Compare(b Age) int {
	if (a.Created == 0) != (b.Created == 0) {
		return -cmp.Compare(a.Created, b.Created)
	}
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.File, b.File), cmp.Compare(a.Index, b.Index))
}

// Meta is what matters of an object's metadata besides its key.
type Meta struct {
	Age
	// Generation is the version of the spec, for observedGeneration; 0 without one.
	Generation int64
}

// StatusCondition is a condition of a status (metav1.Condition).
type StatusCondition struct {
	Condition
	// Generation is observedGeneration.
	Generation int64
	// Changed is lastTransitionTime, in seconds since 1970.
	Changed int64
}
