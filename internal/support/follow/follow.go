// Package follow follows files that other programs write, such as lists and zones:
//
//	stat ─► changed? ─► same for a while? ─► read ─► seems cut off? then same for longer? ─► Use
//
// A file that is written in place is not used before its writer is done with it.
package follow

import (
	"bytes"
	"context"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"time"

	"portolan.dev/portolan/internal/support/deadline"
)

// The intervals are those at which the configuration file is followed.
const (
	// pollInterval is the time between two looks at a file that does not change. A
	// mounted ConfigMap is a symbolic link that is replaced, which a watch of the file
	// does not report.
	pollInterval = time.Second
	// settleInterval is the time for which a changed file must stay the same before it
	// is used. A program that writes it in place may pause between two writes.
	settleInterval = 500 * time.Millisecond
	// cutInterval replaces settleInterval if the file seems cut off.
	cutInterval = 5 * time.Second
	// settlePoll is the time between two looks at a file that settles.
	settlePoll = 100 * time.Millisecond
)

// Content is what a file holds.
type Content struct {
	Text []byte
	Version
}

// Version identifies the content of a file. The zero Version is that of no file.
type Version struct {
	info fs.FileInfo
	// sums are checksums of the text up to the end of each line. The text itself may
	// be large.
	sums  []uint32
	ended bool // the last line has its newline
}

// versionOf returns the version of a file with that text.
func versionOf(info fs.FileInfo, text []byte) Version {
	v := Version{info: info, ended: bytes.HasSuffix(text, []byte("\n"))}
	sum := uint32(0)
	for line := range bytes.Lines(text) {
		sum = crc32.Update(sum, crc32.IEEETable, line)
		v.sums = append(v.sums, sum)
	}
	return v
}

// isOf reports whether a file has not changed since. Files that are written one soon
// after the other may have the same time and size.
func (v *Version) isOf(now fs.FileInfo) bool {
	return v.info != nil && os.SameFile(v.info, now) && v.info.Size() == now.Size() &&
		v.info.ModTime().Equal(now.ModTime())
}

// Equal reports whether both versions have the same text.
func (v *Version) Equal(other *Version) bool {
	n := len(v.sums)
	return (v.info == nil) == (other.info == nil) && n == len(other.sums) && v.ended == other.ended &&
		(n == 0 || v.sums[n-1] == other.sums[n-1])
}

// seemsCut reports whether v may be a part of the text that replaces that of before: it is
// the beginning of that, or lacks the newline at the end.
func (v *Version) seemsCut(before *Version) bool {
	if !v.ended && (before.ended || before.info == nil) {
		return true
	}
	complete := len(v.sums)
	if !v.ended && complete > 0 {
		complete--
	}
	return before.info != nil && complete <= len(before.sums) &&
		(complete == 0 || v.sums[complete-1] == before.sums[complete-1])
}

// Read reads a file. It blocks no longer than deadline.File, also for a named pipe.
func Read(ctx context.Context, path string) (*Content, error) {
	var call deadline.Call[*Content]
	return call.Do(ctx, deadline.File, "read "+path, func() (*Content, error) { return read(path) })
}

func read(path string) (*Content, error) {
	if _, err := os.Stat(path); err != nil { // the error that a Follower has of a missing file
		return nil, err
	}
	file, err := deadline.Open(path, deadline.File, deadline.Large)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return &Content{text, versionOf(file.Stat(), text)}, nil
}

// Follower follows one file.
type Follower struct {
	Path string
	// InUse is the version in use.
	InUse Version
	// Use is called with the content of the file when it has changed and settled. If it
	// returns an error, the content before stays in use.
	Use func(*Content) error
	// Report is called with the errors of reading and of Use, each once until there is
	// another outcome, and with nil when the content of the file is in use again.
	Report func(error)
	// Reported is the error that was reported last, or nil.
	Reported error

	stat deadline.Call[fs.FileInfo]
	read deadline.Call[*Content]

	seen   Version // the version that Use was called with last
	failed error   // of Use
	// pending is a changed file, the time when the change was seen, and how long the
	// file must stay the same.
	pending Version
	since   time.Time
	settle  time.Duration
}

// Run follows the file until ctx is done, whose error it returns.
func (f *Follower) Run(ctx context.Context) error {
	f.seen = f.InUse
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		isSettling, err := f.step(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isSettling:
			timer.Reset(settlePoll)
		default:
			f.pending = Version{}
			f.report(err)
			timer.Reset(pollInterval)
		}
	}
}

// step looks at the file and uses it if it has changed and settled. The error is that of
// the file as it is.
func (f *Follower) step(ctx context.Context) (isSettling bool, err error) {
	info, err := f.stat.Do(ctx, deadline.File, "read "+f.Path, func() (fs.FileInfo, error) { return os.Stat(f.Path) })
	switch {
	case err != nil:
		return false, err
	case f.seen.isOf(info):
		return false, f.failed
	case !f.pending.isOf(info):
		f.pending, f.since, f.settle = Version{info: info}, time.Now(), settleInterval
		return true, nil
	case time.Since(f.since) < f.settle:
		return true, nil
	}
	now, err := f.read.Do(ctx, deadline.File, "read "+f.Path, func() (*Content, error) { return read(f.Path) })
	switch {
	case err != nil:
		return false, err
	case !f.pending.isOf(now.info):
		f.pending, f.since, f.settle = now.Version, time.Now(), settleInterval
		return true, nil
	case now.Equal(&f.InUse):
		f.failed = nil
	case f.settle < cutInterval && now.seemsCut(&f.InUse):
		f.settle = cutInterval
		return true, nil
	default:
		if f.failed = f.Use(now); f.failed == nil {
			f.InUse = now.Version
		}
	}
	f.seen = now.Version
	return false, f.failed
}

// report reports an outcome unless it is the one before.
func (f *Follower) report(err error) {
	same := (err == nil) == (f.Reported == nil) && (err == nil || err.Error() == f.Reported.Error())
	if f.Reported = err; !same {
		f.Report(err)
	}
}
