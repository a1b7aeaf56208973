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

// These are the intervals and timeouts of a Follower.
const (
	// pollInterval is the time between two reads while the file does not change. A
	// mounted ConfigMap is a symbolic link that is replaced, which a watch of the file
	// does not report.
	pollInterval = time.Second
	// settleInterval is the time for which a changed file must stay the same before it
	// is applied. A program that writes it in place may pause between two writes.
	settleInterval = 500 * time.Millisecond
	// cutInterval replaces settleInterval if the file seems truncated: it is a prefix
	// of the file in force, or lacks a newline at the end that the file in force has.
	cutInterval = 5 * time.Second
	// settlePoll is the time between two reads while a file settles.
	settlePoll = 100 * time.Millisecond
	// parseTimeout limits Parse, which reads further files.
	parseTimeout = deadline.File + time.Second
)

// errEmpty is the error for a file that has become empty.
var errEmpty = errors.New("the configuration file is empty")

// Follower applies a configuration file when it has changed, was read completely and is
// valid. Otherwise the previous configuration stays in force:
//
// Read ─► changed? ─► same for settleInterval? ─► not empty? ─► Parse ─► still the same? ─► Apply
//
// Each read runs in a separate goroutine, one at a time. A file whose read blocks, such
// as a named pipe, is reported and does not block the Follower.
type Follower struct {
	// Text is the text of the files of the configuration in force.
	Text []byte
	// Read returns the current text.
	Read func() ([]byte, error)
	// Parse returns the configuration of a text. It may read further files.
	Parse func(text []byte) (Config, error)
	// Apply puts a configuration in force, unless it already is.
	Apply func(Config) error
	// Report is called with the outcome of each attempt: nil if the file is in force,
	// or else the error.
	Report func(error)
	// Reload requests Parse and Apply for an unchanged text.
	Reload <-chan os.Signal

	read     deadline.Call[[]byte]
	parse    deadline.Call[parsed]
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
			f.reported = "" // the outcome of a requested reload is always reported
		}
		text, err := f.read.Do(ctx, deadline.File, "read the configuration", f.Read)
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

// mark is the prefix of a text in failed, so that an empty text is not "".
const mark = "text:"

// settle returns how long a text must stay the same before it is applied.
func (f *Follower) settle(text []byte) time.Duration {
	newline := []byte("\n")
	if bytes.HasPrefix(f.Text, text) || bytes.HasSuffix(f.Text, newline) && !bytes.HasSuffix(text, newline) {
		return cutInterval
	}
	return settleInterval
}

// try applies a text that has settled.
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

// parsed is a text with its configuration.
type parsed struct {
	text []byte
	cfg  Config
}

func (f *Follower) apply(ctx context.Context, text []byte) error {
	if isEmpty(text) && !isEmpty(f.Text) {
		return errEmpty
	}
	p, err := f.parse.Do(ctx, parseTimeout, "apply the configuration", func() (parsed, error) {
		cfg, err := f.Parse(text)
		return parsed{text, cfg}, err
	})
	if err != nil {
		return err
	}
	// Parse may have read files that changed meanwhile, or may have started long ago.
	now, err := f.read.Do(ctx, deadline.File, "read the configuration", f.Read)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, text) || !bytes.Equal(p.text, text) {
		return errChanging
	}
	return f.Apply(p.cfg)
}

// isEmpty reports whether a file has only white space and comments.
func isEmpty(text []byte) bool {
	root, err := parse(text)
	return root == nil && err == nil
}

// errChanging is the error for a file that changed while it was parsed.
var errChanging = errors.New("the configuration file is being written")

// report reports an error once, until another one or a success follows.
func (f *Follower) report(err error) {
	if text := err.Error(); text != f.reported {
		f.reported = text
		f.Report(err)
	}
}

// ReadFile reads a configuration file. If reading blocks, as for a named pipe without a
// writer, it returns an error after a few seconds.
func ReadFile(path string) ([]byte, error) {
	data, err := deadline.ReadFile(path, deadline.File, deadline.Small)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return data, nil
}
