package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"portolan.dev/portolan/internal/policy/cni/attach"
)

// Config configures a Server.
type Config struct {
	// Socket is the path of the Unix socket, absolute; empty is attach.DefaultSocket. Its directory is made if
	// there is none, and has the records of attachments, too: it must be the same for the next process, and
	// for the plugin, on the host.
	Socket string
	Gate   Gate
	// Ready returns why Pods cannot be admitted now, or nil. A nil Ready is always nil.
	Ready func() error
	// Observe is called with each request's verb, how long it took, and its result. It may be nil.
	Observe func(attach.Verb, time.Duration, error)
	Log     *slog.Logger
}

// Bounds of the server.
const (
	// maxConnections is how many requests are in progress. Further ones wait in the kernel's queue.
	maxConnections = 512
	// requestTime is how long a request takes to arrive.
	requestTime = 5 * time.Second
	// admitTime is how long the Gate may take, less than the plugin waits.
	admitTime = 11 * time.Second
	// drainTime is how long requests in progress may take when the process ends.
	drainTime = 2 * time.Second
	// acceptPause is the time until the next attempt after an error of accept(2), such as of too many files.
	acceptPause = 100 * time.Millisecond
)

// ErrStopped is the cause that ends requests in progress when the process ends.
var ErrStopped = errors.New("the agent ends")

// Server answers the CNI plugin.
type Server struct {
	cfg      Config
	registry *Registry
	listener *net.UnixListener
	slots    chan struct{}
}

// Listen binds the socket, in place of the one of a process before, which gets no more requests then, and reads
// the recorded attachments: from then on a Pod's end is a request, and not a record that the plugin removes. Only
// the user of this process, who should be root, can connect. It calls neither the Gate nor starts anything.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Socket == "" {
		cfg.Socket = attach.DefaultSocket
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o755); err != nil {
		return nil, fmt.Errorf("socket of the CNI plugin: %w", err)
	}
	l, err := listen(ctx, cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen on %s (socket of the CNI plugin): %w", cfg.Socket, err)
	}
	registry, err := OpenRegistry(attach.Records(cfg.Socket), cfg.Gate, cfg.Log)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &Server{cfg: cfg, registry: registry, listener: l, slots: make(chan struct{}, maxConnections)}, nil
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

// Registry returns the attachments. After a restart they are those that the process before admitted, of which
// the Gate has to be told by the caller.
func (s *Server) Registry() *Registry { return s.registry }

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
	late := time.AfterFunc(drainTime, func() { stop(ErrStopped) })
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

// serve answers the one request of a connection. If the plugin goes meanwhile, the request is canceled.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, admitTime, errors.New("the policies are not in the kernel in time"))
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(requestTime))
	interrupt := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	begin := time.Now()
	request, err := attach.ReadRequest(conn)
	if interrupt(); err == nil {
		_ = conn.SetDeadline(time.Now().Add(admitTime + requestTime))
		watched, gone := context.WithCancelCause(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, conn) // the plugin sends nothing more; this ends with the connection
			gone(errors.New("the plugin is gone"))
		}()
		err = s.do(watched, request)
		gone(nil)
	}
	if s.cfg.Observe != nil {
		s.cfg.Observe(request.Verb, time.Since(begin), err)
	}
	if err != nil {
		s.cfg.Log.Warn("a request of the CNI plugin fails", "verb", request.Verb, "pod", request.Pod(),
			"container", request.ContainerID, "err", err)
	}
	_ = attach.WriteReply(conn, err)
}

// do does what is asked for.
func (s *Server) do(ctx context.Context, r attach.Request) error {
	switch r.Verb {
	case attach.Admit, attach.Check:
		a, err := attachmentOf(r)
		switch {
		case err != nil:
			return err
		case r.Verb == attach.Check:
			return s.registry.Check(ctx, a)
		}
		return s.registry.Admit(ctx, a)
	case attach.Release:
		return s.registry.Release(ctx, r.ID)
	case attach.Collect:
		return s.registry.Collect(ctx, r.Network, r.Valid)
	case attach.Ready:
		if s.cfg.Ready != nil {
			return s.cfg.Ready()
		}
		return nil
	}
	return fmt.Errorf("verb %q is unknown", r.Verb)
}

// attachmentOf returns the attachment of a request.
func attachmentOf(r attach.Request) (Attachment, error) {
	a := Attachment{Sandbox: r.Sandbox, Devices: r.Devices}
	for _, text := range r.Addresses {
		addr, err := netip.ParseAddr(text)
		if err == nil && addr.Zone() != "" {
			err = fmt.Errorf("address %s has a zone", text)
		}
		if err != nil {
			return Attachment{}, err
		}
		a.Addresses = append(a.Addresses, addr.Unmap())
	}
	return a, a.check()
}
