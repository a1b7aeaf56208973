package snapshot

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// Interval is how long after a change it is written, at most, and how far
// apart two files are written, at least.
const Interval = 5 * time.Second

// Saver keeps a file up to date with a Store.
type Saver struct {
	Path  string
	Store *cluster.Store
	// Heard is when the cluster was heard last: now, or when the snapshot was
	// that all is from.
	Heard func() time.Time
	// Serial is the highest serial of any zone now.
	Serial func() uint32
	Log    *slog.Logger

	written  atomic.Int64 // nanoseconds since 1970; 0 is never
	failures atomic.Uint64
	failing  bool
}

// headroom is how far serials may go on between two files: more changes than
// a server can apply in an Interval. A file that is written when nothing more
// can change has none.
const headroom = 1 << 16

// firstLook is how often it is looked, at the start, whether anything is known.
const firstLook = 50 * time.Millisecond

// Run writes the file as soon as anything is known, so that serials have their
// headroom from the first, and then after changes, until ctx is done. It
// returns ctx's error.
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

// Save writes the file when nothing changes any more.
func (s *Saver) Save() { s.save(0) }

// save writes the file. What is wrong is logged when it begins and when it
// ends: the disk may be full for long. It tells whether it is done.
func (s *Saver) save(ahead uint32) (done bool) {
	snap := Of(s.Store, s.Serial()+ahead)
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

// Written is when the file was last written, by this Saver; zero is never.
func (s *Saver) Written() time.Time {
	if ns := s.written.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// Failures counts the files that could not be written.
func (s *Saver) Failures() uint64 { return s.failures.Load() }
