package snapshot

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// Interval is the longest time between a change and its file, and the shortest
// between two files.
const Interval = 5 * time.Second

// Saver keeps a file up to date with a Store.
type Saver struct {
	Path  string
	Store *cluster.Store
	// Heard returns when the cluster was last heard from: now, or when the snapshot
	// was taken that the model was restored from.
	Heard func() time.Time
	// Serial returns the highest serial of any zone; nil if there are no zones.
	Serial func() uint32
	Log    *slog.Logger

	written  atomic.Int64 // nanoseconds since 1970; 0 is never
	failures atomic.Uint64
	failing  bool
}

// headroom is how far serials may advance between two files: more changes than
// a server can apply in an Interval. The last file, written after all changes,
// needs none.
const headroom = 1 << 16

// firstLook is how often the store is checked at the start, until a file exists.
const firstLook = 50 * time.Millisecond

// Run writes the file as soon as a kind is loaded, so that serials have their
// headroom from the start, and then after changes, until ctx is done. It returns
// ctx's error.
func (s *Saver) Run(ctx context.Context) error {
	ticker := time.NewTicker(firstLook)
	defer ticker.Stop()
	begun := false
	for saved := uint64(0); ; {
		if v := s.Store.Version(); v != saved && s.save(headroom) {
			saved = v
		}
		if !begun && (s.failing || !s.Written().IsZero()) {
			begun = true
			ticker.Reset(Interval)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Save writes the last file, when nothing changes any more.
func (s *Saver) Save() { s.save(0) }

// save writes the file with that headroom, and reports whether it is done. A
// failure is logged when it begins and when it ends: a disk may be full for long.
func (s *Saver) save(ahead uint32) (done bool) {
	serial := uint32(0)
	if s.Serial != nil {
		serial = s.Serial() + ahead
	}
	snap := Of(s.Store, serial)
	if len(snap.kinds) == 0 {
		return true // no kind is loaded, and the present file may hold more
	}
	snap.Heard = s.Heard()
	err := snap.WriteFile(s.Path)
	switch {
	case err != nil:
		s.failures.Add(1)
		if !s.failing {
			s.Log.Error("snapshot can't be written; the last one stays, and it is tried again", "err", err)
		}
	default:
		s.written.Store(time.Now().UnixNano())
		if s.failing {
			s.Log.Info("snapshot can be written again", "file", s.Path)
		}
	}
	s.failing = err != nil
	return err == nil
}

// Written returns when this Saver last wrote the file; zero is never.
func (s *Saver) Written() time.Time {
	if ns := s.written.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// Failures returns how many writes failed.
func (s *Saver) Failures() uint64 { return s.failures.Load() }
