// Package accesslog writes a line for each request of a gateway, and each connection and session that it passes on, in
// JSON or in the combined format (Apache HTTP Server 2.4, "Log Files"). It never delays a request: of lines that are
// not written in time those that come next are dropped, and counted.
//
//	request ──► format.go: a line ──► buffer ──► Run ──► writer
package accesslog

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/datagram"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/stream"
)

// Format is what a line looks like.
type Format string

// The formats.
const (
	Off      Format = "off"
	JSON     Format = "json"
	Combined Format = "combined"
)

const (
	// maxBuffered is how many octets may wait to be written.
	maxBuffered = 1 << 20
	// lastWrite is how long the lines that wait when the process ends may take to be written.
	lastWrite = time.Second
	// tellPause is the shortest time between two messages on lines that were dropped.
	tellPause = time.Minute
)

// Config configures a Log.
type Config struct {
	Out    io.Writer
	Format Format
	// Trusted are clients whose X-Forwarded-For names the client.
	Trusted []netip.Prefix
	// Log is told that lines were dropped.
	Log *slog.Logger
}

// Log is the access log of a gateway.
type Log struct {
	cfg     Config
	format  atomic.Pointer[Format]
	dropped atomic.Uint64
	wake    chan struct{} // has one while there are lines

	mu      sync.Mutex
	waiting []byte
	told    time.Time
}

// New returns a Log. Nothing is written before Run.
func New(cfg Config) *Log {
	l := &Log{cfg: cfg, wake: make(chan struct{}, 1)}
	l.SetFormat(cfg.Format)
	return l
}

// SetFormat has lines from now on be of a format.
func (l *Log) SetFormat(f Format) { l.format.Store(&f) }

// Dropped returns how many lines were dropped.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// lines are buffers for lines.
var lines = sync.Pool{New: func() any { return new(make([]byte, 0, 1024)) }}

// Request logs what became of a request.
func (l *Log) Request(r *proxy.Record) {
	format := *l.format.Load()
	if format == Off {
		return
	}
	e := l.requestEntry(r)
	l.log(&e, format)
}

// Refused logs a request that was refused, and of which nothing else is known.
func (l *Log) Refused(r h1.Refusal) {
	format := *l.format.Load()
	if format == Off {
		return
	}
	l.log(&entry{time: time.Now(), client: hostOf(r.Remote), peer: r.Remote, status: r.Status, reason: r.Reason}, format)
}

// Stream logs what became of a connection of a TLSRoute or TCPRoute.
func (l *Log) Stream(r *stream.Record) {
	format := *l.format.Load()
	if format == Off {
		return
	}
	protocol := "TCP"
	if r.ServerName != "" {
		protocol = "TLS"
	}
	l.log(&entry{
		time: r.Began, client: hostOf(r.Client), peer: r.Client, sent: r.Sent, reason: string(r.Reason),
		passed: &passed{protocol: protocol, serverName: r.ServerName, received: r.Received},
		record: &proxy.Record{
			Listener: r.Listener, Rule: r.Rule, Upstream: r.Upstream, Endpoint: r.Endpoint, Attempts: r.Attempts,
			Sent: r.Sent, Duration: r.Duration,
		},
	}, format)
}

// Session logs what became of a session of a UDPRoute.
func (l *Log) Session(r *datagram.Record) {
	format := *l.format.Load()
	if format == Off {
		return
	}
	l.log(&entry{
		time: r.Began, client: r.Client.Addr().String(), peer: r.Client.String(), sent: r.Sent, reason: string(r.Reason),
		passed: &passed{protocol: "UDP", received: r.Received},
		record: &proxy.Record{
			Listener: r.Listener, Rule: r.Rule, Upstream: r.Upstream, Endpoint: r.Endpoint, Attempts: 1, Sent: r.Sent,
			Duration: r.Duration,
		},
	}, format)
}

// log has a line be written.
func (l *Log) log(e *entry, format Format) {
	line := lines.Get().(*[]byte)
	defer lines.Put(line)
	if *line = (*line)[:0]; format == JSON {
		*line = e.appendJSON(*line)
	} else {
		*line = e.appendCombined(*line)
	}
	l.mu.Lock()
	full := len(l.waiting)+len(*line) > maxBuffered
	if !full {
		l.waiting = append(l.waiting, *line...)
	}
	tell := full && time.Since(l.told) >= tellPause
	if tell {
		l.told = time.Now()
	}
	l.mu.Unlock()
	if full {
		l.dropped.Add(1)
	}
	if tell {
		l.cfg.Log.Warn("lines of the access log are dropped: standard output takes too few", "dropped", l.Dropped())
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run writes lines until ctx is done, and what waits then if that does not take long. It returns nil.
func (l *Log) Run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { // a write may block for ever
		defer close(ended)
		l.write(ctx)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(lastWrite):
	}
	return nil
}

// write writes lines until ctx is done, and then the last ones.
func (l *Log) write(ctx context.Context) {
	var spare []byte
	for done := false; !done; {
		select {
		case <-l.wake:
		case <-ctx.Done():
			done = true
		}
		l.mu.Lock()
		taken := l.waiting
		l.waiting = spare[:0]
		l.mu.Unlock()
		if len(taken) > 0 {
			if _, err := l.cfg.Out.Write(taken); err != nil { // its reader is gone
				l.dropped.Add(uint64(bytes.Count(taken, []byte("\n"))))
			}
		}
		spare = taken
	}
}
