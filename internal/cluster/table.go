package cluster

import (
	"iter"
	"maps"
	"reflect"
	"slices"
)

// Table is the declaration of the objects of one kind. It holds no objects:
// those are in a Store, and are read through one of its Views. Objects are
// written with Tx.Put and Tx.Delete.
type Table[Obj Object] struct {
	schema[Obj]
	indexes []func() bucketer[Obj] // make the empty secondary indexes of a Store
}

// schema is what the Store has to know about a kind.
type schema[Obj Object] struct {
	kind  Kind
	name  string // in the API
	scope scope
	// newObject returns an empty object; nil is one of zeros.
	newObject func() Obj
	// equal reports whether putting one object in the place of the other changes
	// nothing; nil is reflect.DeepEqual.
	equal func(a, b Obj) bool
	// reportAs yields the objects that a change of obj is reported as to feeds; nil
	// is obj itself.
	reportAs func(obj Obj, yield func(Ref))
	// hosts returns the names whose meaning a change of obj may change; nil is none.
	hosts func(obj Obj) []string
	// keepRequests has transactions record what they are asked to store, see
	// Requested.
	keepRequests bool
}

// scope is whether objects live in a Namespace.
type scope bool

const (
	namespaced    scope = false
	clusterScoped scope = true
)

// table is a Table of any kind.
type table interface {
	kindName() string
	kindScope() scope
	empty() Object
	newRows() any // a *rows
	put(*Tx, Object)
	remove(*Tx, Key)
	object(*View, Key) Object
	objects(*View) iter.Seq[Object]
	Len(*View) int
}

// tables are those that are declared, by kind.
var tables [kinds]table

// declare adds a table to tables.
func declare[Obj Object](s schema[Obj]) *Table[Obj] {
	if s.equal == nil {
		s.equal = func(a, b Obj) bool { return reflect.DeepEqual(a, b) }
	}
	if s.newObject == nil {
		s.newObject = func() Obj { return reflect.New(reflect.TypeFor[Obj]().Elem()).Interface().(Obj) }
	}
	t := &Table[Obj]{schema: s}
	tables[s.kind] = t
	return t
}

// rows are the objects of a table in a Store.
type rows[Obj Object] struct {
	byKey   map[Key]Obj
	indexes []bucketer[Obj]
}

func (t *Table[Obj]) kindName() string { return t.name }
func (t *Table[Obj]) kindScope() scope { return t.scope }
func (t *Table[Obj]) empty() Object    { return t.newObject() }

func (t *Table[Obj]) newRows() any {
	r := &rows[Obj]{byKey: make(map[Key]Obj)}
	for _, newIndex := range t.indexes {
		r.indexes = append(r.indexes, newIndex())
	}
	return r
}

func (t *Table[Obj]) rows(v *View) *rows[Obj] { return v.state.rows[t.kind].(*rows[Obj]) }

// Get returns the object at key, or nil.
func (t *Table[Obj]) Get(v *View, key Key) Obj { return t.rows(v).byKey[key] }

// All yields the objects in no order.
func (t *Table[Obj]) All(v *View) iter.Seq[Obj] { return maps.Values(t.rows(v).byKey) }

// Len returns the number of objects.
func (t *Table[Obj]) Len(v *View) int { return len(t.rows(v).byKey) }

// Requested returns what the transaction was asked to store so far: by key the
// object that was put last, nil where it was deleted. Unlike Tx.Changed it
// includes calls that changed nothing. Only tables that are declared with
// keepRequests have any.
func (t *Table[Obj]) Requested(tx *Tx) map[Key]Obj {
	requested := make(map[Key]Obj)
	for ref, o := range tx.requested {
		if ref.Kind == t.kind {
			requested[ref.Key], _ = o.(Obj) // nil when deleted
		}
	}
	return requested
}

func (t *Table[Obj]) object(v *View, key Key) Object {
	if obj, ok := t.rows(v).byKey[key]; ok {
		return obj
	}
	return nil
}

func (t *Table[Obj]) objects(v *View) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for _, obj := range t.rows(v).byKey {
			if !yield(obj) {
				return
			}
		}
	}
}

func (t *Table[Obj]) put(tx *Tx, o Object) {
	obj, ref := o.(Obj), o.Ref()
	if t.keepRequests {
		tx.recordRequest(ref, o)
	}
	r := t.rows(tx.View)
	old, replaces := r.byKey[ref.Key]
	if replaces && t.equal(old, obj) {
		return
	}
	r.byKey[ref.Key] = obj
	for _, index := range r.indexes {
		if replaces {
			index.remove(old)
		}
		index.insert(obj)
	}
	if replaces && (t.reportAs != nil || t.hosts != nil) {
		t.report(tx, old)
	}
	t.report(tx, obj)
}

func (t *Table[Obj]) remove(tx *Tx, key Key) {
	if t.keepRequests {
		tx.recordRequest(Ref{t.kind, key}, nil)
	}
	r := t.rows(tx.View)
	old, ok := r.byKey[key]
	if !ok {
		return
	}
	delete(r.byKey, key)
	for _, index := range r.indexes {
		index.remove(old)
	}
	t.report(tx, old)
}

// report adds a change of obj to what the feeds are told. Until the kind is
// loaded no consumer relies on its objects, and nothing is reported.
func (t *Table[Obj]) report(tx *Tx, obj Obj) {
	if !tx.Loaded(t.kind) {
		return
	}
	if t.hosts != nil {
		tx.changes.addHosts(t.hosts(obj))
	}
	if t.reportAs == nil {
		tx.changes.add(obj.Ref(), tx.cause)
		return
	}
	t.reportAs(obj, func(ref Ref) {
		if tx.Loaded(ref.Kind) {
			tx.changes.add(ref, tx.cause)
		}
	})
}

// Index finds the objects of a table by something other than their key.
type Index[Obj Object, K comparable] struct {
	table *Table[Obj]
	slot  int // among the table's indexes
}

// declareIndex adds a secondary index to a table. keysOf appends to keys those
// that obj is found by.
func declareIndex[Obj Object, K comparable](t *Table[Obj], keysOf func(obj Obj, keys []K) []K) *Index[Obj, K] {
	t.indexes = append(t.indexes, func() bucketer[Obj] {
		return &buckets[Obj, K]{keysOf: keysOf, byKey: make(map[K][]Obj)}
	})
	return &Index[Obj, K]{t, len(t.indexes) - 1}
}

// Get returns the objects at k, sorted by their keys. The list is valid as long
// as the View; it must not be changed.
func (x *Index[Obj, K]) Get(v *View, k K) []Obj { return x.buckets(v).byKey[k] }

// Keys yields the keys that the index has objects for, in no order.
func (x *Index[Obj, K]) Keys(v *View) iter.Seq[K] { return maps.Keys(x.buckets(v).byKey) }

func (x *Index[Obj, K]) buckets(v *View) *buckets[Obj, K] {
	return x.table.rows(v).indexes[x.slot].(*buckets[Obj, K])
}

// bucketer is the buckets of an index with keys of any type.
type bucketer[Obj Object] interface {
	insert(Obj)
	remove(Obj)
}

// buckets are an index's objects in a Store, sorted by their keys.
type buckets[Obj Object, K comparable] struct {
	keysOf  func(Obj, []K) []K
	byKey   map[K][]Obj
	scratch []K
}

func (b *buckets[Obj, K]) insert(obj Obj) {
	b.scratch = b.keysOf(obj, b.scratch[:0])
	for _, k := range b.scratch {
		bucket := b.byKey[k]
		if i, found := search(bucket, obj); !found { // keysOf may return a key twice
			b.byKey[k] = slices.Insert(bucket, i, obj)
		}
	}
}

func (b *buckets[Obj, K]) remove(obj Obj) {
	b.scratch = b.keysOf(obj, b.scratch[:0])
	for _, k := range b.scratch {
		bucket := b.byKey[k]
		switch i, found := search(bucket, obj); {
		case found && len(bucket) == 1:
			delete(b.byKey, k)
		case found:
			b.byKey[k] = slices.Delete(bucket, i, i+1)
		}
	}
}

// search returns the position of the object with obj's key in a bucket, or
// where it would be inserted.
func search[Obj Object](bucket []Obj, obj Obj) (i int, found bool) {
	key := obj.Ref().Key
	return slices.BinarySearchFunc(bucket, key, func(o Obj, k Key) int { return o.Ref().Key.Compare(k) })
}
