package app

import (
	"context"
	"log/slog"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// Warning is a problem of a Service on a node, for its owner. Reason and Action are words in
// UpperCamelCase, as in Events of Kubernetes; the Note is for people.
type Warning struct {
	Service              cluster.Key
	Node                 string
	Reason, Action, Note string
}

const (
	// maxWarnings is how many warnings wait at most; they are in the log, too.
	maxWarnings = 64
	// warningTimeout is how long the attempt to deliver one may take.
	warningTimeout = 10 * time.Second
)

// warnings delivers warnings one after the other, so that nobody waits for the API server.
type warnings struct {
	warn    func(context.Context, Warning) error // nil delivers none
	waiting chan Warning
	log     *slog.Logger
}

func newWarnings(warn func(context.Context, Warning) error, log *slog.Logger) warnings {
	return warnings{warn: warn, waiting: make(chan Warning, maxWarnings), log: log}
}

// put has a warning delivered. It drops one if too many wait.
func (w warnings) put(one Warning) {
	select {
	case w.waiting <- one:
	default:
	}
}

// run delivers warnings until ctx is done, and returns nil. It tries once for each.
func (w warnings) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-w.waiting:
			if w.warn == nil {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, warningTimeout)
			if err := w.warn(limited, one); err != nil {
				w.log.Warn("the owner of a Service is not told of a problem", "service", one.Service, "err", err)
			}
			cancel()
		}
	}
}
