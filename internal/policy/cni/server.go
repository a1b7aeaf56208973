package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/socket"
)

// Config configures a Server.
type Config struct {
	// Socket is the path of the Unix socket, see socket.Config. Its directory has the records of attachments, too.
	Socket string
	Gate   Gate
	// Ready returns why Pods cannot be admitted now, or nil. A nil Ready is always nil.
	Ready func() error
	// Observe is called with each request's verb, how long it took, and its result. It may be nil.
	Observe func(attach.Verb, time.Duration, error)
	Log     *slog.Logger
}

// errLate is the cause that ends a request that takes too long.
var errLate = errors.New("the policies are not in the kernel in time")

// Server answers the CNI plugin of Pods that another network gave their addresses.
type Server struct {
	ready    func() error
	registry *Registry
	socket   *socket.Server
}

// Listen binds the socket and reads the recorded attachments: from then on a Pod's end is a request, and not a record
// that the plugin removes. It calls neither the Gate nor starts anything.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{ready: cfg.Ready}
	var err error
	s.socket, err = socket.Listen(ctx, socket.Config{
		Path: cfg.Socket, Handle: s.handle, Late: errLate, Observe: cfg.Observe, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	if s.registry, err = OpenRegistry(attach.Records(cfg.Socket), cfg.Gate, cfg.Log); err != nil {
		s.socket.Close()
		return nil, err
	}
	return s, nil
}

// Registry returns the attachments. After a restart they are those that the process before admitted, of which
// the Gate has to be told by the caller.
func (s *Server) Registry() *Registry { return s.registry }

// Close closes the socket, if Run is not called.
func (s *Server) Close() { s.socket.Close() }

// Run answers requests until ctx is done, waits for those in progress, and returns nil.
func (s *Server) Run(ctx context.Context) error { return s.socket.Run(ctx) }

// handle does what is asked for.
func (s *Server) handle(ctx context.Context, r attach.Request) (*attach.Result, error) {
	return nil, s.do(ctx, r)
}

// errNoNetwork is the error for a plugin that is to make a Pod's network.
var errNoNetwork = &attach.RefusedError{
	Code: attach.CodeConfig,
	Text: "this agent makes no network (part network of node.parts): " +
		"its plugin comes after one that gives Pods addresses",
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
	case attach.Add:
		return errNoNetwork
	case attach.Release:
		return s.registry.Release(ctx, r.ID)
	case attach.Collect:
		return s.registry.Collect(ctx, r.Network, r.Valid)
	case attach.Ready:
		if s.ready != nil {
			return s.ready()
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
