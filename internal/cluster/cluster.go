// Package cluster is the in-memory model of a Kubernetes cluster: small structs
// with what naming and networking need of each API object, a Store that holds
// them in one table per kind, and feeds that tell consumers which objects
// changed. The structs follow the Kubernetes API types of core/v1,
// discovery.k8s.io/v1, apps/v1, batch/v1, networking.k8s.io/v1 and
// gateway.networking.k8s.io/v1.
//
//	kube/api, kube/manifest ── Update(Tx) ──► Store ── Feed ──► compilers (dns/kubezone, ...)
//	                                            │                   │
//	cluster/snapshot ◄── View ──────────────────┴─────── View ──────┘
//
// Objects are immutable once they are in the Store, so that readers may keep
// them after their View ends.
//
// # Adding a kind
//
//  1. Here: the struct with its Ref method, a Kind constant and a table
//     declaration (kind.go), with the secondary indexes that readers need.
//  2. In kube/object: the decoder and its line in Kinds.
//
// Snapshots, both sources, the model's dump and the feeds take it from there;
// tests that go through Kinds check that they do. Readers use the table:
//
//	cluster.Services.Get(view, key)
//	cluster.SlicesByService.Get(view, key)
package cluster

import (
	"cmp"
	"strings"
)

// Key names an object of a kind. Namespace is empty for kinds that are cluster
// scoped.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys by namespace, then by name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Ref names an object: its kind and its key.
type Ref struct {
	Kind Kind
	Key  Key
}

// String returns the kind in lower case and the key, as in "service shop/web".
func (r Ref) String() string { return strings.ToLower(r.Kind.String()) + " " + r.Key.String() }

// Object is a pointer to one of the model's structs.
type Object interface {
	// Ref returns the object's kind and key.
	Ref() Ref
}
