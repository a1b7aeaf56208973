// Package snapshot keeps the model in a file, so that a server that starts
// while the cluster's API is away can answer from what was known last.
//
// A file is a line that says what it is and in which version, the model's
// objects in encoding/gob, and the SHA-256 sum of all before it. It is replaced
// whole, by renaming a complete one over it. One that is damaged, or of another
// version or program, is set aside and never used.
package snapshot

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// magic begins every file of this version.
const magic = "portolan snapshot 1\n"

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

// WriteFile replaces the file at path. When it fails, the file that was there
// is as it was, and nothing else is left behind. One program may write it at a
// time.
func (s *Snapshot) WriteFile(path string) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	err = s.write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(f.Name())
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; make room there: the new file is written beside the last one", err)
	}
	return fmt.Errorf("snapshot: %w", err)
}

func (s *Snapshot) write(w io.Writer) error {
	sum := sha256.New()
	buffered := bufio.NewWriter(io.MultiWriter(w, sum))
	if _, err := buffered.WriteString(magic); err != nil {
		return err
	}
	h := header{Serial: s.Serial, Heard: s.Heard, Objects: len(s.objects)}
	for _, k := range s.kinds {
		h.Kinds = append(h.Kinds, k.String())
	}
	enc := gob.NewEncoder(buffered)
	if err := enc.Encode(h); err != nil {
		return err
	}
	for i := range s.objects {
		if err := enc.Encode(&s.objects[i]); err != nil {
			return err
		}
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// ErrForeign is wrapped by the errors of files that are no snapshots of this
// version, or damaged ones.
var ErrForeign = errors.New("not a whole snapshot of this version")

// ReadFile reads the file at path. One that is there and can't be used is
// renamed to path.bad, and the error wraps ErrForeign; one that is not there
// is fs.ErrNotExist.
func ReadFile(path string) (*Snapshot, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s, err := parse(data)
	if err == nil {
		return s, nil
	}
	aside := path + ".bad"
	if moved := os.Rename(path, aside); moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		return nil, fmt.Errorf("snapshot %s: %w, and can't be set aside: %w", path, err, moved)
	}
	return nil, fmt.Errorf("snapshot %s: %w; it is set aside as %s", path, err, aside)
}

func parse(data []byte) (*Snapshot, error) {
	body, sum := data[:max(0, len(data)-sha256.Size)], data[max(0, len(data)-sha256.Size):]
	if !bytes.HasPrefix(body, []byte(magic)) || sha256.Sum256(body) != [sha256.Size]byte(sum) {
		return nil, ErrForeign
	}
	dec := gob.NewDecoder(bytes.NewReader(body[len(magic):]))
	var h header
	if err := dec.Decode(&h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	s := &Snapshot{Serial: h.Serial, Heard: h.Heard, objects: make([]object, h.Objects)}
	for _, k := range cluster.Kinds() {
		if slices.Contains(h.Kinds, k.String()) {
			s.kinds = append(s.kinds, k)
		}
	}
	for i := range s.objects {
		if err := dec.Decode(&s.objects[i]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForeign, err)
		}
	}
	return s, nil
}
