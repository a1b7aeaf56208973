// Package socket is the Unix socket at which a node's agent answers the CNI plugin: one request and one reply for each
// connection, see package attach.
//
//	plugin ── Request ──► Server ──► Handler ──► kernel
//	       ◄── Reply ────        ◄──
package socket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
)

// Handler does what requests ask for. It is called concurrently. The result is that of Add, otherwise nil. If ctx is
// done it returns its cause.
type Handler func(ctx context.Context, r attach.Request) (*attach.Result, error)

// Config configures a Server.
type Config struct {
	// Path is that of the Unix socket, absolute; empty is attach.DefaultSocket. Its directory is made if there is none.
	// It must be the same for the next process, and for the plugin, on the host.
	Path   string
	Handle Handler
	// Late is the cause that ends a request that takes too long.
	Late error
	// Observe is called with each request's verb, how long it took, and its result. It may be nil.
	Observe func(attach.Verb, time.Duration, error)
	Log     *slog.Logger
}

// Bounds of the server.
const (
	// maxConnections is how many requests are in progress. Further ones wait in the kernel's queue.
	maxConnections = 512
	// shortRequest is how many octets of a request are read in any case: it is longer than almost all.
	shortRequest = 16 << 10
	// maxLong is how many requests that are longer are in progress: parsed, each takes up to some 12 MiB. One that waits,
	// as Add does for policies, leaves room for others.
	maxLong = 8
	// requestTime is how long a request takes to arrive.
	requestTime = 5 * time.Second
	// handleTime is how long the Handler may take, less than the plugin waits.
	handleTime = 11 * time.Second
	// drainTime is how long requests in progress may take when the process ends.
	drainTime = 2 * time.Second
	// acceptPause is the time until the next attempt after an error of accept(2), such as of too many files.
	acceptPause = 100 * time.Millisecond
)

// Server answers the CNI plugin.
type Server struct {
	cfg      Config
	listener *net.UnixListener
	slots    chan struct{}
	long     chan struct{} // has room for the requests that are not short
	parsing  sync.Mutex    // of one request at a time, see attach.Parse
}

// Listen binds the socket, in place of the one of a process before, which gets no more requests then. Only the user of
// this process, who should be root, can connect. It starts nothing.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	cfg.Path = cmp.Or(cfg.Path, attach.DefaultSocket)
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o755); err != nil {
		return nil, fmt.Errorf("socket of the CNI plugin: %w", err)
	}
	l, err := listen(ctx, cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s (socket of the CNI plugin): %w", cfg.Path, err)
	}
	return &Server{
		cfg: cfg, listener: l, slots: make(chan struct{}, maxConnections), long: make(chan struct{}, maxLong),
	}, nil
}

// listen binds a socket of mode 0600, and replaces the socket at path by it.
func listen(ctx context.Context, path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errors.New("there is a file that is not a socket")
	}
	fresh := path + "." + strconv.Itoa(os.Getpid())
	_ = os.Remove(fresh) // of a process with this number before
	l, err := new(net.ListenConfig).Listen(ctx, "unix", fresh)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, err
	}
	unix := l.(*net.UnixListener)
	unix.SetUnlinkOnClose(false) // it may be that of the next process
	err = os.Chmod(fresh, 0o600)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		unix.Close()
		_ = os.Remove(fresh)
		return nil, err
	}
	return unix, nil
}

// Close closes the socket, if Run is not called.
func (s *Server) Close() { s.listener.Close() }

// Run answers requests until ctx is done, waits for those in progress, and returns nil.
func (s *Server) Run(ctx context.Context) error {
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	var requests sync.WaitGroup
	for s.reserve(ctx) {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			<-s.slots
			if !errors.Is(err, net.ErrClosed) {
				s.cfg.Log.Warn("the CNI plugin cannot connect", "err", err)
				wait(ctx, acceptPause)
			}
			continue
		}
		requests.Go(func() {
			defer func() { <-s.slots }()
			s.serve(working, conn)
		})
	}
	late := time.AfterFunc(drainTime, func() { stop(attach.ErrStopped) })
	defer late.Stop()
	requests.Wait()
	return nil
}

// reserve waits until another connection may be accepted. It returns false when ctx is done.
func (s *Server) reserve(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case s.slots <- struct{}{}:
		return true
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// read reads the request of a connection.
func (s *Server) read(ctx context.Context, conn *net.UnixConn, from *gate) (attach.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(requestTime))
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	from.late = ctx.Done()
	text, err := attach.Read(from)
	if err != nil {
		return attach.Request{}, err
	}
	s.parsing.Lock()
	defer s.parsing.Unlock()
	return attach.Parse(text)
}

// errLong is the error of a request that is not short while enough others are.
var errLong = &attach.RefusedError{Code: attach.CodeTryAgain, Text: "the agent is busy with other long requests"}

// serve answers the one request of a connection. If the plugin goes meanwhile, the request is canceled.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, handleTime, s.cfg.Late)
	defer cancel()
	begin := time.Now()
	from := &gate{conn: conn, long: s.long, short: shortRequest}
	defer from.release()
	var result *attach.Result
	request, err := s.read(ctx, conn, from)
	_ = conn.SetDeadline(time.Now().Add(handleTime + requestTime))
	if err == nil {
		watched, gone := context.WithCancelCause(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, conn) // the plugin sends nothing more; this ends with the connection
			gone(errors.New("the plugin is gone"))
		}()
		result, err = s.cfg.Handle(watched, request)
		gone(nil)
	}
	if s.cfg.Observe != nil {
		s.cfg.Observe(request.Verb, time.Since(begin), err)
	}
	if err != nil {
		s.cfg.Log.Warn("a request of the CNI plugin fails", "verb", request.Verb, "pod", request.Pod(),
			"container", request.ContainerID, "err", err)
	}
	_ = attach.WriteReply(conn, result, err)
}

// gate reads from a connection. From some octets on it waits until few enough others have read more.
type gate struct {
	conn  io.Reader
	short int // octets that are left to be read in any case
	long  chan struct{}
	held  bool            // long
	late  <-chan struct{} // closed when the request should have arrived
}

// Read reads.
func (g *gate) Read(b []byte) (n int, err error) {
	if g.short == 0 && !g.held {
		select {
		case g.long <- struct{}{}:
			g.held = true
		case <-g.late:
			return 0, errLong
		}
	}
	if g.held {
		return g.conn.Read(b)
	}
	n, err = g.conn.Read(b[:min(len(b), g.short)])
	g.short -= n
	return n, err
}

// release lets the next one read.
func (g *gate) release() {
	if g.held {
		<-g.long
	}
}
