package rolling

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// clients look a name up at the cluster DNS IP: some from ports of their own, which they
// use again, and whose conntrack entries lead to one Pod, and some from a new port each
// time. A lookup is one query without a retry; it is lost if it has no right answer within
// glibcTimeout.
type clients struct {
	sent atomic.Int64

	mu   sync.Mutex
	lost []loss
}

// loss is a lookup without a right answer.
type loss struct {
	sent time.Time
	err  error
}

const (
	sockets  = 100
	interval = 50 * time.Millisecond // of each client
	// glibcTimeout is how long glibc waits for an answer (resolv.conf(5), timeout).
	glibcTimeout = 5 * time.Second
)

// run looks up until ctx is done.
func (c *clients) run(ctx context.Context) {
	var all sync.WaitGroup
	for range sockets {
		all.Go(func() {
			conn, err := net.Dial("udp", dnsIP+":53")
			if err != nil {
				c.count(func() error { return err })
				return
			}
			defer conn.Close()
			c.repeat(ctx, func() error { return lookUp(conn) })
		})
	}
	for range sockets / 4 {
		all.Go(func() {
			c.repeat(ctx, func() error {
				conn, err := net.Dial("udp", dnsIP+":53")
				if err != nil {
					return err
				}
				defer conn.Close()
				return lookUp(conn)
			})
		})
	}
	all.Wait()
}

// losses returns what was lost so far.
func (c *clients) losses() []loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lost)
}

func (c *clients) repeat(ctx context.Context, do func() error) {
	select { // so that clients do not look up together
	case <-ctx.Done():
	case <-time.After(rand.N(interval)):
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		c.count(do)
		<-tick.C
	}
}

func (c *clients) count(do func() error) {
	sent := time.Now()
	err := do()
	c.sent.Add(1)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lost = append(c.lost, loss{sent, err})
	}
}

// lookUp sends a query and waits for its answer.
func lookUp(conn net.Conn) error {
	query := dnsmessage.Message{
		Header: dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName("kube-dns.kube-system.svc.cluster.local."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
		}},
	}
	packet, err := query.Pack()
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(glibcTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(packet); err != nil {
		return err
	}
	for reply := make([]byte, 512); ; {
		n, err := conn.Read(reply)
		if err != nil {
			return err
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply[:n]); err != nil {
			return err
		}
		switch {
		case m.ID != query.ID: // the answer to a query that counts as lost
		case m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) == 0:
			return fmt.Errorf("%s, %v", m.RCode, m.Answers)
		default:
			return nil
		}
	}
}
