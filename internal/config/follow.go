package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"portolan.dev/portolan/internal/support/deadline"
)

// How a Follower waits.
const (
	// pollInterval is the time between two reads of a file that does not change. A
	// mounted ConfigMap is a link that is swapped, which no watch of the file reports.
	pollInterval = time.Second
	// settleInterval is the time for which a changed file stays the same before it is
	// applied: a program that writes it in place may pause between two pieces.
	settleInterval = 500 * time.Millisecond
	// cutInterval is that time for a file that looks cut off: it begins the one in
	// force, or lacks the newline at the end that that one has.
	cutInterval = 5 * time.Second
	// settlePoll is the time between two reads while a file settles.
	settlePoll = 100 * time.Millisecond
	// parseTimeout bounds the parsing, which reads further files.
	parseTimeout = deadline.File + time.Second
)

// errEmpty says that a file which was not empty is now.
var errEmpty = errors.New("the configuration file is empty")

// Follower applies a configuration file whenever it changed, was read whole and
// is valid. Otherwise the configuration before stays in force:
//
//	Read ─► changed? ─► same for settleInterval? ─► not empty? ─► Parse ─► still the same? ─► Apply
//
// Reads run in goroutines of their own, one at a time: a file that blocks its
// reader, such as a named pipe, is reported and stops nothing.
type Follower struct {
	// Text is the text of the files that the configuration in force was read from.
	Text []byte
	// Read reads that text again.
	Read func() ([]byte, error)
	// Parse returns the configuration of a text. It may read further files.
	Parse func(text []byte) (Config, error)
	// Apply puts a configuration in force, unless it is in force already.
	Apply func(Config) error
	// Report is called with the outcome of each attempt: nil where the file is in
	// force, otherwise why it is not.
	Report func(error)
	// Reload asks for Parse and Apply although no text changed.
	Reload <-chan os.Signal

	read  deadline.Call[[]byte]
	parse deadline.Call[parsed]
	failed   string // the last text that could not be applied, after a mark; "" for none
	reported string // the error reported last; "" where the file is in force
}

// Run follows the file until ctx is done, whose error it returns.
func (f *Follower) Run(ctx context.Context) error {
	var pending []byte       // a changed text
	var since time.Time      // when it was first read
	wait := time.Duration(0) // until the next read
	for {
		forced := false
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-f.Reload:
			timer.Stop()
			forced = true
		case <-timer.C:
		}
		if forced {
			f.reported = "" // who asks for a reload is told of its outcome
		}
		text, err := f.read.Do(ctx, deadline.File, f.Read)
		wait = pollInterval
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			pending = nil
			f.report(err)
		case bytes.Equal(text, f.Text):
			pending = nil
			if forced || f.reported != "" {
				f.try(ctx, text)
			}
		case pending == nil || !bytes.Equal(text, pending):
			pending, since, wait = text, time.Now(), settlePoll
		case time.Since(since) < f.settle(text):
			wait = settlePoll
		case forced || f.failed != mark+string(text):
			f.try(ctx, text)
		}
	}
}

// mark stands before a text in failed, which an empty text is not "" with.
const mark = "text:"

// settle is how long a text stays the same before it is applied.
func (f *Follower) settle(text []byte) time.Duration {
	newline := []byte("\n")
	if bytes.HasPrefix(f.Text, text) || bytes.HasSuffix(f.Text, newline) && !bytes.HasSuffix(text, newline) {
		return cutInterval
	}
	return settleInterval
}

// try applies a text that settled.
func (f *Follower) try(ctx context.Context, text []byte) {
	switch err := f.apply(ctx, text); {
	case err == nil:
		f.Text, f.failed, f.reported = text, "", ""
		f.Report(nil)
	case ctx.Err() != nil || errors.Is(err, errChanging): // the next read decides
	default:
		f.failed = mark + string(text)
		f.report(err)
	}
}

// parsed is the configuration of a text.
type parsed struct {
	text []byte
	cfg  Config
}

func (f *Follower) apply(ctx context.Context, text []byte) error {
	if isEmpty(text) && !isEmpty(f.Text) {
		return errEmpty
	}
	p, err := f.parse.Do(ctx, parseTimeout, func() (parsed, error) {
		cfg, err := f.Parse(text)
		return parsed{text, cfg}, err
	})
	if err != nil {
		return err
	}
	// Parse may have read files that changed meanwhile, or have begun long ago.
	now, err := f.read.Do(ctx, deadline.File, f.Read)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, text) || !bytes.Equal(p.text, text) {
		return errChanging
	}
	return f.Apply(p.cfg)
}

// isEmpty reports whether a file holds nothing but white space and comments.
func isEmpty(text []byte) bool {
	root, err := parse(text)
	return root == nil && err == nil
}

// errChanging says that a file changed while it was parsed.
var errChanging = errors.New("the configuration file is being written")

// report reports an error once, until another one or a success follows.
func (f *Follower) report(err error) {
	if text := err.Error(); text != f.reported {
		f.reported = text
		f.Report(err)
	}
}

// ReadFile reads a configuration file. A path that blocks its reader, such as a
// named pipe without a writer, is an error after a few seconds.
func ReadFile(path string) ([]byte, error) {
	data, err := deadline.ReadFile(path, deadline.File)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return data, nil
}
