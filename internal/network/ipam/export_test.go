package ipam

import (
	"log/slog"

	"portolan.dev/portolan/internal/cni/attach"
)

// Store, Entry, OpenStore and Directory have tests fail between the writes of a Pool.
type (
	Store = store
	Entry = entry
)

// StoreMethods are those of a Store, for tests that implement one around another.
type StoreMethods struct {
	Load   func() ([]Entry, error)
	Write  func(Entry) error
	Remove func(attach.ID) error
	Settle func(attach.ID) error
}

func (m StoreMethods) load() ([]entry, error)    { return m.Load() }
func (m StoreMethods) write(e entry) error       { return m.Write(e) }
func (m StoreMethods) remove(id attach.ID) error { return m.Remove(id) }
func (m StoreMethods) settle(id attach.ID) error { return m.Settle(id) }

// Methods returns the methods of a directory of a boot.
func Methods(path, boot string, log *slog.Logger) StoreMethods {
	d := &directory{path: path, boot: boot, log: log}
	return StoreMethods{d.load, d.write, d.remove, d.settle}
}

// OpenStore is Open with a Store.
func OpenStore(cfg Config, from Store) (*Pool, error) { return open(cfg, from) }
