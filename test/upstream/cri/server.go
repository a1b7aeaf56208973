//go:build linux

package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"portolan.dev/portolan/test/upstream/image"
)

// Config describes a runtime.
type Config struct {
	Socket string // the path at which it listens
	// Streams is the address and port of the server that kubelets forward exec and port
	// forwarding to. They need no credentials.
	Streams  netip.AddrPort
	Dir      string // of the containers' files; it exists
	Images   image.Store
	PodCIDRs []netip.Prefix // at most one of each family
	Plugin   *Plugin        // nil: there is none
	// CNI is where the network of sandboxes comes from; nil: the runtime makes it out of PodCIDRs.
	CNI *CNI
}

// Server is a container runtime.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	config    Config
	addresses []*allocator // one of each Pod CIDR
	streams   streaming.Server

	mu         sync.Mutex
	made       int // sandboxes and containers, for their IDs
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

// New returns a runtime without containers.
func New(config Config) (*Server, error) {
	s := &Server{config: config, sandboxes: map[string]*sandbox{}, containers: map[string]*container{}}
	for _, cidr := range config.PodCIDRs {
		s.addresses = append(s.addresses, newAllocator(cidr))
	}
	c := streaming.DefaultConfig
	c.Addr = config.Streams.String()
	c.BaseURL = &url.URL{Scheme: "http", Host: c.Addr}
	var err error
	s.streams, err = streaming.NewServer(c, streams{s})
	return s, err
}

// Run serves until ctx is done, and then ends the containers.
func (s *Server) Run(ctx context.Context) error {
	l, err := net.Listen("unix", s.config.Socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(l) }()
	go func() {
		if err := s.streams.Start(true); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	server.Stop()
	return errors.Join(err, s.streams.Stop(), s.endAll())
}

// endAll kills all containers and gives the networks back.
func (s *Server) endAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, c := range s.containers {
		c.stop(0)
	}
	for _, b := range s.sandboxes {
		errs = append(errs, s.stopSandbox(b))
	}
	return errors.Join(errs...)
}

// newID returns an ID that no sandbox and no container has, and a directory of that name. The
// caller holds the lock.
func (s *Server) newID(kind string) (id, dir string, err error) {
	s.made++
	id = kind + strconv.Itoa(s.made)
	dir = filepath.Join(s.config.Dir, id)
	return id, dir, os.Mkdir(dir, 0o755)
}

// find returns what is in the map, or an error that kubelets know.
func find[T any](s *Server, in map[string]*T, id string) (*T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := in[id]; ok {
		return found, nil
	}
	return nil, status.Errorf(codes.NotFound, "no %s", id)
}

// Version names the runtime.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "portolan-test", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status reports that the runtime is ready, and whether its network is.
func (s *Server) Status(ctx context.Context, _ *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, s.networkReady(ctx),
	}}}, nil
}

// RuntimeConfig names the driver of cgroups, which are not used.
func (s *Server) RuntimeConfig(
	context.Context, *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS,
	}}, nil
}

// UpdateRuntimeConfig accepts the node's Pod CIDR, which Config has.
func (s *Server) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// allocator gives out addresses of a Pod CIDR, in turn, so that an address is used again as late
// as possible.
type allocator struct {
	cidr netip.Prefix
	last netip.Addr
	used map[netip.Addr]bool
}

func newAllocator(cidr netip.Prefix) *allocator {
	cidr = cidr.Masked()
	return &allocator{cidr: cidr, last: cidr.Addr(), used: map[netip.Addr]bool{}}
}

func (a *allocator) allocate() (netip.Addr, error) {
	const most = 250 // fewer than the smallest usual range has
	if len(a.used) >= most {
		return netip.Addr{}, fmt.Errorf("%d addresses of %s are used", most, a.cidr)
	}
	for {
		a.last = a.last.Next()
		if !a.cidr.Contains(a.last.Next()) { // the last one is for broadcasts
			a.last = a.cidr.Addr().Next()
		}
		if !a.used[a.last] {
			a.used[a.last] = true
			return a.last, nil
		}
	}
}

func (a *allocator) release(addr netip.Addr) { delete(a.used, addr) }

// nanoseconds is a time as the interface has it; 0 for none.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
