// Package conntrack keeps Linux's connection tracking in agreement with the frontends of a
// node.
//
// The kernel chooses an endpoint for the first packet of a flow only; an entry of connection
// tracking sends the others after it. For UDP a flow is all packets between two sockets, so that
// a client with a fixed port stays with an endpoint as long as it sends, even after the endpoint
// is gone. A Cleaner deletes such entries, and the next packet is the first of a new flow.
// Kubernetes: "Virtual IPs and Service Proxies"; pkg/proxy/conntrack of kube-proxy.
//
//	Changed ──► queue.go:       which frontends are due
//	            cleaner.go:     one pass for all of them
//	            table.go:       reads the entries that the kernel's filter leaves, deletes
//	            stale.go:       which are stale
//
// Sysctls are the settings of connection tracking that kube-proxy makes.
package conntrack

import (
	"log/slog"
	"time"

	"portolan.dev/portolan/internal/support/ctnetlink"
)

// interval is the time between two looks at a frontend: packets that were on their way when
// it changed may have made entries after the first. No two passes begin within it, so that
// changes that follow one another fast share passes.
const interval = 100 * time.Millisecond

// share is which part of the time passes of up to 100 ms take at most in the long run: one in share;
// maxRest says what holds for longer ones. A pass walks all buckets of the kernel's table, for 10 ms
// where there are 262,144, and longer if they are full.
const share = 10

// burst is for how long passes may go on at intervals before they have to take their share only, so
// that a few changes do not wait for one another.
const burst = 2 * time.Second

// maxRest is the longest time that a change waits after the end of a pass. Passes of up to 100 ms need
// less rest to take their share only. In the long run, longer ones take more than their share, and
// each is followed by a rest of maxRest.
const maxRest = time.Second

// maxBackoff is the longest time until a failed pass is repeated.
const maxBackoff = 10 * time.Second

// Config configures a Cleaner.
type Config struct {
	// ResetTCP has TCP connections end that were made to endpoints at which they may not go on.
	// Without its entry, the next packet of a client is taken for the first of a connection, and
	// goes to another endpoint, which resets it; the node does so if there is no other. A client
	// that only reads notices with its next keep-alive. A client whose SYN got no answer sends
	// the next one to another endpoint. Connections go on as without ResetTCP if the frontend
	// was deleted, or while the sysctl nf_conntrack_tcp_loose is 0: nobody would reset them.
	ResetTCP bool
	// Passed is told of each pass, by the goroutine of Run; nil if nobody wants to know.
	Passed func(Pass)
	Log    *slog.Logger
}

// Pass is one look at all entries of a family.
type Pass struct {
	Family   ctnetlink.Family
	Duration time.Duration
	// Deleted is the number of entries deleted.
	Deleted int
	// Err says why the pass did not reach its end; it will be repeated.
	Err error
}
