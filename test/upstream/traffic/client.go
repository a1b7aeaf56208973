//go:build linux

package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Client connects to servers.
type Client struct {
	// Target returns the address of the next connection, HOST:PORT.
	Target func() (string, error)

	mu      sync.Mutex
	figures Figures
	begun   [newClients + lastingClients]time.Time // the requests without an answer yet
}

// Figures are what came of connections.
type Figures struct {
	New     Count // connections for one request
	Lasting Count // connections for many requests
	// Repeated is how many of the New ones had packets that were sent again. The kernel does so
	// after a second at the earliest if the connection is being opened, and after 200 ms otherwise.
	Repeated int
	// Answered has when the New connections were opened, by the names of the servers that
	// answered.
	Answered map[string][]time.Time
	// Complete is the time of the figures, or that of the oldest request that has neither an answer
	// nor failed: all that began before count.
	Complete time.Time
}

// Count is of connections of one kind.
type Count struct {
	Opened int // all, those that failed too
	Failed int
	// Ended is how many the server ended after an answer, before the next one.
	Ended int
	// Failures are when and why the first ones failed.
	Failures []string
}

// Add adds those of another client.
func (f *Figures) Add(other Figures) {
	f.New.Add(other.New)
	f.Lasting.Add(other.Lasting)
	f.Repeated += other.Repeated
	if f.Complete.IsZero() || other.Complete.Before(f.Complete) {
		f.Complete = other.Complete
	}
	if f.Answered == nil {
		f.Answered = map[string][]time.Time{}
	}
	for name, opened := range other.Answered {
		f.Answered[name] = append(f.Answered[name], opened...)
	}
}

// Add adds those of another client.
func (c *Count) Add(other Count) {
	c.Opened += other.Opened
	c.Failed += other.Failed
	c.Ended += other.Ended
	c.Failures = append(c.Failures, other.Failures...)
}

const (
	// newClients open a connection each pause, and lastingClients send a request over theirs.
	newClients, lastingClients = 10, 10
	pause                      = 100 * time.Millisecond
	// patience is how long a client waits for a connection, and for an answer.
	patience = 20 * time.Second
)

// Await waits until a server answers, which is not counted, or ctx is done.
func (c *Client) Await(ctx context.Context) error {
	for {
		_, _, _, err := c.open()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// Run connects until ctx is done.
func (c *Client) Run(ctx context.Context) {
	var all sync.WaitGroup
	for i := range c.begun {
		all.Go(func() {
			var l lasting
			defer l.close()
			c.repeat(ctx, &c.begun[i], func() {
				if i < newClients {
					c.connect()
				} else {
					l.request(c)
				}
			})
		})
	}
	all.Wait()
}

// repeat calls do each pause until ctx is done, and sets when it did while do runs.
func (c *Client) repeat(ctx context.Context, begun *time.Time, do func()) {
	set := func(t time.Time) {
		c.mu.Lock()
		defer c.mu.Unlock()
		*begun = t
	}
	select { // so that not all do so at once
	case <-ctx.Done():
	case <-time.After(rand.N(pause)):
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for ctx.Err() == nil {
		set(time.Now())
		do()
		set(time.Time{})
		<-tick.C
	}
}

// Figures returns what came of the connections so far.
func (c *Client) Figures() Figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all Figures
	all.Add(c.figures) // a copy
	all.Complete = time.Now()
	for _, begun := range c.begun {
		if !begun.IsZero() && begun.Before(all.Complete) {
			all.Complete = begun
		}
	}
	return all
}

// connect sends a request over a connection of its own.
func (c *Client) connect() {
	begun := time.Now()
	conn, _, name, err := c.open()
	if conn != nil {
		defer conn.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.figures.New.Opened++
	if err != nil {
		c.figures.New.fail(begun, err)
		return
	}
	if repeated(conn) {
		c.figures.Repeated++
	}
	if c.figures.Answered == nil {
		c.figures.Answered = map[string][]time.Time{}
	}
	c.figures.Answered[name] = append(c.figures.Answered[name], begun)
}

// fail counts a failure.
func (c *Count) fail(begun time.Time, err error) {
	const most = 5
	c.Failed++
	if len(c.Failures) < most {
		c.Failures = append(c.Failures, fmt.Sprintf("%s, after %s: %v",
			begun.Format("15:04:05.000"), time.Since(begun).Round(time.Millisecond), err))
	}
}

// lasting is a connection that is dialed again when it has ended or failed.
type lasting struct {
	conn    *net.TCPConn // nil without one
	answers *bufio.Reader
}

// request sends a request, over a new connection if there is none.
func (l *lasting) request(c *Client) {
	begun := time.Now()
	var err error
	opened := l.conn == nil
	if opened {
		l.conn, l.answers, _, err = c.open()
	} else {
		_, err = ask(l.conn, l.answers)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	count := &c.figures.Lasting
	if opened {
		count.Opened++
	}
	if err == nil {
		return
	}
	if !opened && errors.Is(err, io.EOF) {
		count.Ended++
	} else {
		count.fail(begun, err)
	}
	l.close()
}

func (l *lasting) close() {
	if l.conn != nil {
		l.conn.Close()
	}
	l.conn, l.answers = nil, nil
}

// open opens a connection and sends a request over it. With an error, the connection may be nil.
func (c *Client) open() (conn *net.TCPConn, answers *bufio.Reader, name string, err error) {
	to, err := c.Target()
	if err != nil {
		return nil, nil, "", err
	}
	dialed, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return nil, nil, "", err
	}
	conn = dialed.(*net.TCPConn)
	answers = bufio.NewReader(conn)
	name, err = ask(conn, answers)
	return conn, answers, name, err
}

// ask sends a request and returns the answer; io.EOF if the server ended the connection before.
func ask(conn *net.TCPConn, answers *bufio.Reader) (name string, err error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("\n")); err != nil {
		return "", err
	}
	name, err = answers.ReadString('\n')
	if name != "" && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return strings.TrimSuffix(name, "\n"), err
}

// repeated reports whether packets of a connection were sent again (tcp(7), TCP_INFO).
func repeated(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	if raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}) != nil || err != nil {
		return false
	}
	return info.Total_retrans > 0
}
