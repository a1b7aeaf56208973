// Package snapshot keeps the model in a file, so that a server that starts
// while the cluster's API is away can answer from what was known last.
//
// It is a state file that holds the model's objects in encoding/gob.
package snapshot

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/statefile"
)

const kind = statefile.Format("portolan snapshot 1\n")

// Snapshot is the model at one moment.
type Snapshot struct {
	// Serial is one that no zone's serial had gone beyond, and will not until
	// the next snapshot.
	Serial uint32
	// Heard is when the cluster was heard last.
	Heard time.Time

	kinds   []cluster.Kind // those that were loaded
	objects []object
}

// header comes first in a file, object after object behind it.
type header struct {
	Serial  uint32
	Heard   time.Time
	Kinds   []string
	Objects int
}

// object is one object of any kind; the other fields are nil.
type object struct {
	Namespace     *cluster.Namespace
	Service       *cluster.Service
	EndpointSlice *cluster.EndpointSlice
	Pod           *cluster.Pod
	Node          *cluster.Node
	Workload      *cluster.Workload
	NetworkPolicy *cluster.NetworkPolicy
}

// Of is the store's model as it is now: the objects of all kinds that are
// loaded. Objects are shared with the store, not copied.
func Of(store *cluster.Store, serial uint32) *Snapshot {
	s := &Snapshot{Serial: serial, Heard: time.Now()}
	store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			if v.Loaded(k) {
				s.kinds = append(s.kinds, k)
				s.objects = slices.Grow(s.objects, v.Len(k))
				s.add(v, k)
			}
		}
	})
	return s
}

func (s *Snapshot) add(v *cluster.View, k cluster.Kind) {
	switch k {
	case cluster.KindNamespace:
		for o := range v.Namespaces() {
			s.objects = append(s.objects, object{Namespace: o})
		}
	case cluster.KindService:
		for o := range v.Services() {
			s.objects = append(s.objects, object{Service: o})
		}
	case cluster.KindEndpointSlice:
		for o := range v.EndpointSlices() {
			s.objects = append(s.objects, object{EndpointSlice: o})
		}
	case cluster.KindPod:
		for o := range v.Pods() {
			s.objects = append(s.objects, object{Pod: o})
		}
	case cluster.KindNode:
		for o := range v.Nodes() {
			s.objects = append(s.objects, object{Node: o})
		}
	case cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet, cluster.KindJob, cluster.KindCronJob:
		for o := range v.Workloads(k) {
			s.objects = append(s.objects, object{Workload: o})
		}
	case cluster.KindNetworkPolicy:
		for o := range v.NetworkPolicies() {
			s.objects = append(s.objects, object{NetworkPolicy: o})
		}
	}
}

// Restore puts the objects of the given kinds into the store, and says that
// these kinds are recalled; a kind that was not loaded when the snapshot was
// made stays as it is.
func (s *Snapshot) Restore(store *cluster.Store, kinds []cluster.Kind) {
	store.Update(func(tx *cluster.Tx) {
		for _, o := range s.objects {
			if slices.Contains(kinds, o.kind()) {
				o.put(tx)
			}
		}
		for _, k := range s.kinds {
			if slices.Contains(kinds, k) {
				tx.SetFreshness(cluster.Recalled, k)
			}
		}
	})
}

// Len is how many objects there are.
func (s *Snapshot) Len() int { return len(s.objects) }

func (o *object) kind() cluster.Kind {
	switch {
	case o.Namespace != nil:
		return cluster.KindNamespace
	case o.Service != nil:
		return cluster.KindService
	case o.EndpointSlice != nil:
		return cluster.KindEndpointSlice
	case o.Pod != nil:
		return cluster.KindPod
	case o.Workload != nil:
		return o.Workload.Kind
	case o.NetworkPolicy != nil:
		return cluster.KindNetworkPolicy
	}
	return cluster.KindNode
}

func (o *object) put(tx *cluster.Tx) {
	switch {
	case o.Namespace != nil:
		tx.PutNamespace(o.Namespace)
	case o.Service != nil:
		tx.PutService(o.Service)
	case o.EndpointSlice != nil:
		tx.PutEndpointSlice(o.EndpointSlice)
	case o.Pod != nil:
		tx.PutPod(o.Pod)
	case o.Node != nil:
		tx.PutNode(o.Node)
	case o.Workload != nil:
		tx.PutWorkload(o.Workload)
	case o.NetworkPolicy != nil:
		tx.PutNetworkPolicy(o.NetworkPolicy)
	}
}

// WriteFile replaces the file at path, see statefile.Kind.Write.
func (s *Snapshot) WriteFile(path string) error {
	if err := kind.Write(path, s.write); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

func (s *Snapshot) write(w io.Writer) error {
	h := header{Serial: s.Serial, Heard: s.Heard, Objects: len(s.objects)}
	for _, k := range s.kinds {
		h.Kinds = append(h.Kinds, k.String())
	}
	enc := gob.NewEncoder(w)
	if err := enc.Encode(h); err != nil {
		return err
	}
	for i := range s.objects {
		if err := enc.Encode(&s.objects[i]); err != nil {
			return err
		}
	}
	return nil
}

// ErrForeign is wrapped by the errors of files that are no snapshots of this
// version, or damaged ones.
var ErrForeign = statefile.ErrForeign

// ReadFile reads the file at path, see statefile.Kind.Read.
func ReadFile(path string) (s *Snapshot, err error) {
	err = kind.Read(path, func(contents []byte) error {
		s, err = parse(contents)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

func parse(contents []byte) (*Snapshot, error) {
	dec := gob.NewDecoder(bytes.NewReader(contents))
	var h header
	if err := dec.Decode(&h); err != nil {
		return nil, err
	}
	s := &Snapshot{Serial: h.Serial, Heard: h.Heard, objects: make([]object, h.Objects)}
	for _, k := range cluster.Kinds() {
		if slices.Contains(h.Kinds, k.String()) {
			s.kinds = append(s.kinds, k)
		}
	}
	for i := range s.objects {
		if err := dec.Decode(&s.objects[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}
