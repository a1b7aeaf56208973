// Package snapshot keeps the model in a file, so that a server that starts
// while the Kubernetes API is unreachable can answer from the last known state.
//
// The file is a statefile whose contents are encoding/gob values: a header, then
// the objects of each kind in the header's order.
package snapshot

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/statefile"
)

// format is the file's first line. Its number changes with the format.
const format = statefile.Format("portolan snapshot 2\n")

// Snapshot is the model at one moment.
type Snapshot struct {
	// Serial is an upper bound of the zones' serials until the next snapshot.
	Serial uint32
	// Heard is when the cluster was last heard from.
	Heard time.Time

	kinds []kindObjects // of the kinds that were loaded
}

// kindObjects are the objects of one kind.
type kindObjects struct {
	kind    cluster.Kind
	objects []cluster.Object
}

// header is the first value of a file.
type header struct {
	Serial uint32
	Heard  time.Time
	Kinds  []kindHeader
}

// kindHeader says how many objects of a kind follow. Name is the kind's in the
// API: numbers of kinds may change between releases.
type kindHeader struct {
	Name    string
	Objects int
}

// Of returns a snapshot of all kinds in the store that are loaded, but for Secrets and what else
// objects refer to (cluster.ReferencedKinds): no file has private keys. Objects are shared with the
// store, not copied.
func Of(store *cluster.Store, serial uint32) *Snapshot {
	s := &Snapshot{Serial: serial, Heard: time.Now()}
	store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			if v.Loaded(k) && !slices.Contains(cluster.ReferencedKinds(), k) {
				objects := slices.AppendSeq(make([]cluster.Object, 0, v.Len(k)), v.Objects(k))
				s.kinds = append(s.kinds, kindObjects{k, objects})
			}
		}
	})
	return s
}

// Restore puts the objects of the given kinds into the store and sets these
// kinds' freshness to Recalled. A kind that was not loaded when the snapshot was
// taken is left alone.
func (s *Snapshot) Restore(store *cluster.Store, kinds []cluster.Kind) {
	store.Update(func(tx *cluster.Tx) {
		for _, of := range s.kinds {
			if !slices.Contains(kinds, of.kind) {
				continue
			}
			for _, o := range of.objects {
				tx.Put(o)
			}
			tx.SetFreshness(cluster.Recalled, of.kind)
		}
	})
}

// Len returns the number of objects.
func (s *Snapshot) Len() (n int) {
	for _, of := range s.kinds {
		n += len(of.objects)
	}
	return n
}

// WriteFile replaces the file at path, see statefile.Format.Write.
func (s *Snapshot) WriteFile(path string) error {
	if err := format.Write(path, s.write); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

func (s *Snapshot) write(w io.Writer) error {
	h := header{Serial: s.Serial, Heard: s.Heard}
	for _, of := range s.kinds {
		h.Kinds = append(h.Kinds, kindHeader{of.kind.String(), len(of.objects)})
	}
	enc := gob.NewEncoder(w)
	if err := enc.Encode(h); err != nil {
		return err
	}
	for _, of := range s.kinds {
		for _, o := range of.objects {
			if err := enc.Encode(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrForeign is wrapped by the errors for files that are not snapshots of this
// version, or that are damaged.
var ErrForeign = statefile.ErrForeign

// ReadFile reads the file at path, see statefile.Format.Read.
func ReadFile(path string) (s *Snapshot, err error) {
	err = format.Read(path, func(contents []byte) error {
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
	s := &Snapshot{Serial: h.Serial, Heard: h.Heard}
	for _, of := range h.Kinds {
		objects, err := readObjects(dec, of)
		if err != nil {
			return nil, err
		}
		if k, ok := cluster.KindOf(of.Name); ok {
			s.kinds = append(s.kinds, kindObjects{k, objects})
		}
	}
	return s, nil
}

// readObjects reads the objects of a kind. It discards those of a kind that this
// release does not know.
func readObjects(dec *gob.Decoder, of kindHeader) ([]cluster.Object, error) {
	k, ok := cluster.KindOf(of.Name)
	if !ok {
		for range of.Objects {
			if err := dec.DecodeValue(reflect.Value{}); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	objects := make([]cluster.Object, of.Objects)
	for i := range objects {
		objects[i] = k.New()
		if err := dec.Decode(objects[i]); err != nil {
			return nil, err
		}
	}
	return objects, nil
}
