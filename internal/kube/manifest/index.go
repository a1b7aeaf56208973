package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// index combines what all files declare into the objects of the model. It is
// brought up to date with the files that changed, and its work is proportional
// to what they declare, not to the tree.
type index struct {
	// simulated is set when there is a control plane, which rejects Services with
	// a cluster IP in use and does not mirror Endpoints of Services with selectors.
	simulated bool
	objects   map[identity]*declaration
	endpoints int // how many of objects are legacy Endpoints, which the model does not have
	// inNamespace counts what lives in each Namespace: objects, and documents of
	// kinds that are not read. A Namespace that is not declared exists while there
	// is anything.
	inNamespace map[string]int
	// sliceCount counts the declared EndpointSlices of each Service.
	sliceCount map[cluster.Key]int
	// mirrors are the EndpointSlices that mirror legacy Endpoints, by their own
	// keys; mirrored those that are in the model, by their Endpoints' key.
	mirrors  map[cluster.Key]*cluster.EndpointSlice
	mirrored map[cluster.Key][]*cluster.EndpointSlice
	implied  map[string]*cluster.Namespace // that are in the model
	users    map[netip.Addr][]cluster.Key  // Services, sorted, by cluster IP

	// What is wrong between files, by what it is about.
	twice  map[identity][]Problem
	shared map[netip.Addr][]Problem
}

// declaration is what is declared at one identity.
type declaration struct {
	files []*file // that declare it now, or did before they broke, by path
	file  *file   // the one of them that counts; nil when there is none
	value any     // what it declares
}

func newIndex() *index {
	return &index{
		objects:     make(map[identity]*declaration),
		inNamespace: make(map[string]int),
		sliceCount:  make(map[cluster.Key]int),
		mirrors:     make(map[cluster.Key]*cluster.EndpointSlice),
		mirrored:    make(map[cluster.Key][]*cluster.EndpointSlice),
		implied:     make(map[string]*cluster.Namespace),
		users:       make(map[netip.Addr][]cluster.Key),
		twice:       make(map[identity][]Problem),
		shared:      make(map[netip.Addr][]Problem),
	}
}

// fileChange is a file as it was and as it is; nil where there is none.
type fileChange struct{ old, now *file }

// touched is what a change of files may change.
type touched struct {
	objects    map[identity]bool
	namespaces map[string]bool
	endpoints  map[cluster.Key]bool // whose mirrors may come or go
	addresses  map[netip.Addr]bool  // whose users changed
	changes    map[cluster.Ref]bool // objects of the model that differ
}

// update takes in changes of files and returns the objects of the model that
// may differ.
func (x *index) update(changed []fileChange) map[cluster.Ref]bool {
	t := touched{
		objects: make(map[identity]bool), namespaces: make(map[string]bool), endpoints: make(map[cluster.Key]bool),
		addresses: make(map[netip.Addr]bool), changes: make(map[cluster.Ref]bool),
	}
	for _, c := range changed {
		if c.old != nil {
			x.remove(c.old, &t)
		}
		if c.now != nil {
			x.insert(c.now, &t)
		}
	}
	for id := range t.objects {
		x.resolve(id, &t)
	}
	for ns := range t.namespaces {
		x.imply(ns, &t)
	}
	for key := range t.endpoints {
		x.mirror(key, &t)
	}
	for addr := range t.addresses {
		x.checkShared(addr)
	}
	return t.changes
}

func (x *index) remove(f *file, t *touched) {
	for id := range f.identities {
		t.objects[id] = true
		o := x.objects[id]
		o.files = slices.DeleteFunc(o.files, func(other *file) bool { return other == f })
	}
	for ns := range f.namespaces {
		x.countNamespace(ns, -1, t)
	}
}

func (x *index) insert(f *file, t *touched) {
	for id := range f.identities {
		t.objects[id] = true
		o := x.objects[id]
		if o == nil {
			o = new(declaration)
			x.objects[id] = o
		}
		i, _ := slices.BinarySearchFunc(o.files, f.path, func(f *file, path string) int { return cmp.Compare(f.path, path) })
		o.files = slices.Insert(o.files, i, f)
	}
	for ns := range f.namespaces {
		x.countNamespace(ns, 1, t)
	}
}

// resolve finds out which file's declaration counts: the last one's, in the
// order of paths. Only where no file declares the object now, the last good
// version in the first file does.
func (x *index) resolve(id identity, t *touched) {
	o := x.objects[id]
	var counts *file
	delete(x.twice, id)
	for _, f := range o.files {
		e, ok := f.declared[id]
		if !ok {
			continue
		}
		if counts != nil {
			x.twice[id] = append(x.twice[id], twiceProblem(e, counts.declared[id]))
		}
		counts = f
	}
	if counts == nil && len(o.files) > 0 {
		counts = o.files[0]
	}
	var value any
	if counts != nil {
		value = counts.entry(id).value
	}
	if value != o.value {
		x.count(id, o.value, -1, t)
		x.count(id, value, 1, t)
	} else if service, ok := value.(*cluster.Service); ok {
		t.addAddresses(service) // problems may name other lines
	}
	o.file, o.value = counts, value
	if counts == nil {
		delete(x.objects, id)
	}
}

// count adds what an object means for others, or takes it away.
func (x *index) count(id identity, value any, by int, t *touched) {
	if value == nil {
		return
	}
	x.countNamespace(id.key.Namespace, by, t)
	switch v := value.(type) {
	case *mirrored:
		x.endpoints += by
		t.endpoints[id.key] = true
		for _, slice := range v.slices {
			if by > 0 {
				x.mirrors[slice.Key] = slice
			} else {
				delete(x.mirrors, slice.Key)
			}
		}
		return
	case *cluster.EndpointSlice:
		service := cluster.Key{Namespace: v.Namespace, Name: v.Service}
		if x.sliceCount[service] += by; x.sliceCount[service] == 0 {
			delete(x.sliceCount, service)
		}
		t.endpoints[service] = true
		if m := x.mirrors[v.Key]; m != nil { // of another Service, by chance
			t.endpoints[cluster.Key{Namespace: m.Namespace, Name: m.Service}] = true
		}
	case *cluster.Service:
		t.endpoints[id.key] = true
		x.countAddresses(v, by, t)
	case *cluster.Namespace:
		t.namespaces[v.Name] = true
	}
	t.changes[value.(cluster.Object).Ref()] = true
}

func (x *index) countNamespace(name string, by int, t *touched) {
	if name == "" {
		return
	}
	if x.inNamespace[name] += by; x.inNamespace[name] == 0 {
		delete(x.inNamespace, name)
	}
	t.namespaces[name] = true
}

// countAddresses adds the Service to the users of its cluster IPs, or removes it.
func (x *index) countAddresses(s *cluster.Service, by int, t *touched) {
	for _, addr := range s.ClusterIPs {
		users := x.users[addr]
		i, found := slices.BinarySearchFunc(users, s.Key, cluster.Key.Compare)
		switch {
		case by > 0 && !found:
			x.users[addr] = slices.Insert(users, i, s.Key)
		case by < 0 && found && len(users) == 1:
			delete(x.users, addr)
		case by < 0 && found:
			x.users[addr] = slices.Delete(users, i, i+1)
		}
	}
	t.addAddresses(s)
}

func (t *touched) addAddresses(s *cluster.Service) {
	for _, addr := range s.ClusterIPs {
		t.addresses[addr] = true
	}
}

// imply decides whether a Namespace exists that is not declared.
func (x *index) imply(name string, t *touched) {
	key := cluster.Key{Name: name}
	wanted := x.inNamespace[name] > 0 && x.objects[identity{cluster.KindNamespace.String(), key}] == nil
	if wanted == (x.implied[name] != nil) {
		return
	}
	if wanted {
		x.implied[name] = &cluster.Namespace{Name: name}
	} else {
		delete(x.implied, name)
	}
	t.changes[cluster.Ref{Kind: cluster.KindNamespace, Key: key}] = true
}

// mirror decides which EndpointSlices of legacy Endpoints are in the model: none
// where the Service has slices of its own.
func (x *index) mirror(key cluster.Key, t *touched) {
	var slicesNow []*cluster.EndpointSlice
	if o := x.objects[identity{kindEndpoints, key}]; o != nil && x.sliceCount[key] == 0 && x.mirrorsService(key) {
		for _, slice := range o.value.(*mirrored).slices {
			if x.objects[identity{cluster.KindEndpointSlice.String(), slice.Key}] == nil {
				slicesNow = append(slicesNow, slice)
			}
		}
	}
	before := x.mirrored[key]
	if slices.Equal(before, slicesNow) {
		return
	}
	for _, slice := range slices.Concat(before, slicesNow) {
		t.changes[slice.Ref()] = true
	}
	if x.mirrored[key] = slicesNow; len(slicesNow) == 0 {
		delete(x.mirrored, key)
	}
}

// mirrorsService reports whether a control plane mirrors the Endpoints of a
// Service: it makes the slices of one with a selector itself.
func (x *index) mirrorsService(key cluster.Key) bool {
	if !x.simulated {
		return true
	}
	o := x.objects[identity{cluster.KindService.String(), key}]
	return o != nil && len(o.value.(*cluster.Service).Selector) == 0
}

// checkShared warns of Services that have an address in common, which no API
// server assigns: both serve. A control plane rejects the second.
func (x *index) checkShared(addr netip.Addr) {
	delete(x.shared, addr)
	users := x.users[addr]
	if x.simulated || len(users) < 2 {
		return
	}
	entryOf := func(key cluster.Key) entry {
		e, _ := x.entry(identity{cluster.KindService.String(), key})
		return e
	}
	first := entryOf(users[0])
	for _, key := range users[1:] {
		o := entryOf(key)
		x.shared[addr] = append(x.shared[addr], Problem{
			File:   o.file,
			Line:   o.line,
			Object: o.id.String(),
			Err: fmt.Errorf("cluster IP %s is that of %s too, in %s:%d; its reverse name has both", addr, first.id,
				first.file, first.line),
		})
	}
}

func twiceProblem(o, first entry) Problem {
	return Problem{File: o.file, Line: o.line, Object: o.id.String(),
		Err: fmt.Errorf("declared before, in %s:%d; this one counts", first.file, first.line)}
}

// entry returns the declaration of an object that counts.
func (x *index) entry(id identity) (e entry, ok bool) {
	if o := x.objects[id]; o != nil {
		return o.file.entry(id), true
	}
	return entry{}, false
}

// value returns the object that the model is to hold at ref, nil for none.
func (x *index) value(ref cluster.Ref) cluster.Object {
	if o := x.objects[identity{ref.Kind.String(), ref.Key}]; o != nil {
		return o.value.(cluster.Object)
	}
	switch ref.Kind {
	case cluster.KindNamespace:
		if n := x.implied[ref.Key.Name]; n != nil {
			return n
		}
	case cluster.KindEndpointSlice:
		if s := x.mirrors[ref.Key]; s != nil &&
			slices.Contains(x.mirrored[cluster.Key{Namespace: s.Namespace, Name: s.Service}], s) {
			return s
		}
	}
	return nil
}

// len returns how many objects the model is to hold.
func (x *index) len() int {
	n := len(x.objects) - x.endpoints + len(x.implied)
	for _, mirrored := range x.mirrored {
		n += len(mirrored)
	}
	return n
}

// problems returns what is wrong between files.
func (x *index) problems() []Problem {
	return slices.Concat(slices.Concat(slices.Collect(maps.Values(x.twice))...),
		slices.Concat(slices.Collect(maps.Values(x.shared))...))
}
