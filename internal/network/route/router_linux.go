package route

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Router programs routes and tunnels of the network namespace in which it was made. All methods are safe for
// concurrent use.
type Router struct {
	cfg         Config
	hostChanged chan struct{}
	// damaged has a token while the kernel may not have what is wanted.
	damaged chan struct{}

	mu     sync.Mutex
	handle *netlink.Handle
	socket *socket
	want   *wanted // nil before Sync
	// synced: the kernel has what is wanted, as far as is known.
	synced bool
	links  map[string]int // indexes of the devices that routes lead to
	host   map[int]bool   // the indexes of Host's interfaces
}

// New returns a Router, and changes nothing.
func New(cfg Config) (*Router, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	socket, err := dial()
	if err != nil {
		handle.Close()
		return nil, err
	}
	return &Router{
		cfg: cfg.withDefaults(), hostChanged: make(chan struct{}, 1), damaged: make(chan struct{}, 1),
		handle: handle, socket: socket, host: make(map[int]bool),
	}, nil
}

// Close closes the sockets. What was programmed stays. Run must have returned.
func (r *Router) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handle.Close()
	r.socket.close()
}

// HostChanged receives a token when Host may return something else, while Run runs.
func (r *Router) HostChanged() <-chan struct{} { return r.hostChanged }

// Sync has the kernel have exactly what is in a Plan, and no more. It changes nothing that is right. What cannot be
// programmed, such as a range to which another program has a route, is in the error; all else is programmed. Run
// repeats what failed.
func (r *Router) Sync(p *Plan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = newWanted(p)
	_, err := r.sync()
	return err
}

// errNotSynced is returned by Apply before Sync.
var errNotSynced = errors.New("Sync must be called first")

// Apply applies changes of the Plan.
func (r *Router) Apply(c *Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.want == nil {
		return errNotSynced
	}
	t := r.want.change(c)
	if c.Local == nil && r.synced {
		if err := r.apply(t); err == nil {
			return nil
		}
		// The kernel is not as it was left, or a device is gone.
	}
	_, err := r.sync()
	return err
}

// apply changes what was touched, from what it was.
func (r *Router) apply(t touched) error {
	d := new(difference)
	for k, was := range t.routes {
		d.routes(was, r.want.routes[k])
	}
	for k, was := range t.neighbors {
		d.neighbors(was, r.want.neighbors[k])
	}
	for k, was := range t.forwards {
		d.forwards(was, r.want.forwards[k])
	}
	for to, was := range t.unreachable {
		d.unreachable(to, was, r.want.isUnreachable(to))
	}
	return r.execute(d)
}

// notify leaves a token.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
