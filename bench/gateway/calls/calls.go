// Package calls sends requests over HTTP/1.1 connections, or calls methods of gRPC, as fast as they are answered or at
// a fixed rate, and measures how long responses take and what they cost the proxy.
package calls

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// Config is one run.
type Config struct {
	Target      netip.AddrPort
	Request     string
	Connections int
	// Method, if not "", is called over gRPC in place of the request; connections are clients then, some of which share
	// a connection. Each message of a stream counts as a request.
	Method string
	// Secure, if not nil, has the connections go over TLS.
	Secure *Secure
	// Fresh has each request use a new connection; otherwise connections stay open.
	Fresh bool
	// Rate is the number of requests per second; 0 is as many as are answered.
	Rate int
	// Warm is how long the same load runs before Duration, in which it is measured.
	Warm, Duration time.Duration
	// Processes are those of the proxy.
	Processes []int
}

// Result is what was measured. Latency at a fixed rate is from when a request was due.
type Result struct {
	Answered   int
	Elapsed    time.Duration
	ServerTime time.Duration // processor time of the proxy
	P50, P99   time.Duration
}

// run is a Config that runs.
type run struct {
	*Config
	start, end time.Time // of what is measured

	mu   sync.Mutex
	took []time.Duration
	err  error // the first
}

// open connects. Each of the calls sends a request, whose response must be 200, and is not used concurrently.
func (c *Config) open(ctx context.Context) (calls []func() error, closeAll func(), err error) {
	var open []io.Closer
	closeAll = func() {
		for _, c := range open {
			_ = c.Close() // all is read
		}
	}
	if c.Method != "" {
		for _, client := range c.rpcs(ctx) {
			calls, open = append(calls, client.call), append(open, client)
		}
		return calls, closeAll, nil
	}
	for range c.Connections {
		if c.Fresh {
			calls = append(calls, c.Once)
			continue
		}
		conn, err := Dial(Target{Address: c.Target, Secure: c.Secure}, c.Request)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		calls, open = append(calls, func() error { return succeeds(conn) }), append(open, conn)
	}
	return calls, closeAll, nil
}

// succeeds sends a request. The response must be 200.
func succeeds(conn *Connection) error {
	status, _, err := conn.Call()
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d, want 200", status)
	}
	return err
}

// Once sends one request over a new connection. The response must be 200.
func (c *Config) Once() error {
	one := *c
	one.Connections, one.Fresh = 1, false
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	calls, closeAll, err := one.open(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	return calls[0]()
}

// Run sends the requests. Each response must be 200.
func Run(c *Config) (*Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Warm+c.Duration+patience)
	defer cancel()
	calls, closeAll, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	begin := time.Now()
	r := &run{Config: c, start: begin.Add(c.Warm), end: begin.Add(c.Warm + c.Duration)}
	var ended sync.WaitGroup
	for i, call := range calls {
		ended.Go(func() { r.repeat(call, begin, i) })
	}
	time.Sleep(time.Until(r.start))
	before, err := rig.ProcessorTime(c.Processes)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	time.Sleep(time.Until(r.end))
	after, err := rig.ProcessorTime(c.Processes)
	elapsed := time.Since(started)
	ended.Wait()
	if err := errors.Join(err, r.err); err != nil {
		return nil, err
	}
	if len(r.took) == 0 {
		return nil, errors.New("no response")
	}
	return &Result{
		Answered: len(r.took), Elapsed: elapsed, ServerTime: after - before,
		P50: rig.Quantile(r.took, .5), P99: rig.Quantile(r.took, .99),
	}, nil
}

// repeat sends the requests of the nth connection until the end.
func (r *run) repeat(call func() error, begin time.Time, nth int) {
	var took []time.Duration
	for i := 0; ; i++ {
		due := time.Now()
		if r.Rate > 0 { // the connections take turns
			due = begin.Add(time.Duration(i*r.Connections+nth) * time.Second / time.Duration(r.Rate))
		}
		if !due.Before(r.end) {
			break
		}
		time.Sleep(time.Until(due))
		if err := call(); err != nil {
			r.note(nil, err)
			return
		}
		if now := time.Now(); !now.Before(r.start) && now.Before(r.end) {
			took = append(took, now.Sub(due))
		}
	}
	r.note(took, nil)
}

func (r *run) note(took []time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = slices.Concat(r.took, took)
	if r.err == nil {
		r.err = err
	}
}
