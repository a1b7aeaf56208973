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

// DeclaredAt returns o with the place of its declaration in a manifest, if the model has its Age and that
// has no creationTimestamp; otherwise it returns o.
func DeclaredAt(o Object, file string, index int) Object {
	at := func(m *Meta) {
		if m.Created == 0 {
			m.File, m.Index = file, index
		}
	}
	switch o := o.(type) {
	case *Frontend:
		placed := *o
		if o.Ingress != nil {
			spec := *o.Ingress
			at(&spec.Meta)
			placed.Ingress = &spec
		}
		if o.Gateway != nil {
			spec := *o.Gateway
			at(&spec.Meta)
			placed.Gateway = &spec
		}
		return &placed
	case *Route:
		if o.Spec == nil {
			return o
		}
		placed, spec := *o, *o.Spec
		at(&spec.Meta)
		placed.Spec = &spec
		return &placed
	case *IngressClass:
		placed := *o
		at(&placed.Meta)
		return &placed
	case *GatewayClass:
		placed := *o
		at(&placed.Meta)
		return &placed
	case *BackendTLSPolicy:
		placed := *o
		at(&placed.Meta)
		return &placed
	case *RoutePolicy:
		placed := *o
		at(&placed.Meta)
		return &placed
	case *BackendTrafficPolicy:
		placed := *o
		at(&placed.Meta)
		return &placed
	case *ListenerSet:
		placed := *o
		at(&placed.Meta)
		return &placed
	}
	return o
}
