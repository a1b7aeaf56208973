package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/bench/rig"
)

// The sizes of bodies, in octets.
const (
	smallSize = 1 << 10
	largeSize = 1 << 20
)

// largeCount is the number of connections that fetch large bodies.
const largeCount = 4

// request returns a request for a body of a size.
func request(size int) string { return calls.Request(host, fmt.Sprintf("/files/%d", size)) }

// sample is what one contender did in one round. What its group does not measure is nil or 0.
type sample struct {
	small, large *calls.Result // as many requests as are answered
	steady       *calls.Result // at a fixed rate
	memory       float64       // resident, before connections are idle, in MiB
	idle         float64       // resident memory of an idle connection, in KiB
}

// sample starts a contender and measures it.
func (b *bench) sample(ctx context.Context, g *group, e *entrant) (s *sample, err error) {
	server, err := b.start(ctx, g, e)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	processes, err := server.Processes()
	if err != nil {
		return nil, err
	}
	s = new(sample)
	for _, m := range []struct {
		load   calls.Config
		result **calls.Result
	}{{g.small, &s.small}, {g.steady, &s.steady}, {g.large, &s.large}} {
		if m.load.Connections == 0 {
			continue
		}
		m.load.Target, m.load.Processes, m.load.Warm, m.load.Duration = server.DNS, processes, time.Second, b.duration
		if *m.result, err = b.call(ctx, m.load); err != nil {
			return nil, err
		}
	}
	if g.idle > 0 {
		s.memory, s.idle, err = measureIdle(server, g)
	}
	return s, err
}

// call runs the caller.
func (b *bench) call(ctx context.Context, c calls.Config) (*calls.Result, error) {
	in, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, b.caller)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &stdout, &stderr
	ended := make(chan error)
	go func() {
		err := rig.StartOn(cmd, []int{otherCPU})
		if err == nil {
			err = cmd.Wait()
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &stderr)
	}
	r := new(calls.Result)
	return r, json.Unmarshal(stdout.Bytes(), r)
}

// measureIdle opens connections that wait after a request, from many addresses, and returns the resident memory before,
// in MiB, and what each adds, in KiB.
func measureIdle(server *rig.Server, g *group) (before, each float64, err error) {
	const (
		perSource = 50
		rest      = 5 * time.Second // until buffers are given back
	)
	time.Sleep(rest)
	if before, err = residentOf(server); err != nil {
		return 0, 0, err
	}
	for i := range g.idle {
		from := netip.AddrFrom4([4]byte{127, 1, byte(i / perSource / 250), byte(1 + i/perSource%250)})
		c, err := calls.Dial(calls.Target{Address: server.DNS, From: from, Secure: g.small.Secure}, g.small.Request)
		if err != nil {
			return 0, 0, err
		}
		defer c.Close()
		if status, _, err := c.Call(); err != nil || status != 200 {
			return 0, 0, fmt.Errorf("idle connection %d: status %d: %w", i, status, err)
		}
	}
	time.Sleep(rest)
	after, err := residentOf(server)
	const kibi = 1024
	return before, (after - before) * kibi / float64(g.idle), err
}

// residentOf returns the resident memory of a server's processes together, in MiB.
func residentOf(server *rig.Server) (sum float64, err error) {
	ids, err := server.Processes()
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		now, _, err := rig.Memory(id)
		if err != nil {
			return 0, err
		}
		sum += now
	}
	return sum, nil
}
