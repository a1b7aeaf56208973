package forwarding

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"

	"portolan.dev/portolan/bench/rig"
)

// stage is a running contender with dedicated upstreams.
type stage struct {
	*rig.Server
	processes []int
	upstreams []*upstream
}

// on starts a contender and new upstreams, and stops them after play, so that no server
// remembers an upstream's behavior in another part.
func (b *bench) on(ctx context.Context, e *entrant, play func(*stage) error) error {
	b.stages++
	files := b.file(fmt.Sprintf("%s-%d", e.name, b.stages))
	st := new(stage)
	var addresses []netip.AddrPort
	for _, name := range []string{"a", "b"} {
		u, err := b.startUpstream(ctx, files+"-"+name)
		if err != nil {
			return err
		}
		defer u.Stop()
		st.upstreams, addresses = append(st.upstreams, u), append(addresses, u.DNS)
	}
	contender, err := e.contend(addresses, files)
	if err != nil {
		return err
	}
	contender.CPUs = []int{serverCPU}
	if st.Server, err = contender.Start(); err != nil {
		return err
	}
	defer st.Stop()
	if err := st.WaitReady(ctx); err != nil {
		return err
	}
	if st.processes, err = st.Processes(); err != nil {
		return err
	}
	return play(st)
}

// upstream is a running upstream.
type upstream struct {
	*rig.Server
	control string // URL
}

func (b *bench) startUpstream(ctx context.Context, files string) (*upstream, error) {
	u := new(upstream)
	contender := rig.Contender{
		Name: "upstream", Log: files + ".log", Ready: rig.OverHTTP("/"), CPUs: []int{generatorCPU},
		Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
			u.control = fmt.Sprintf("http://%s/", ports[1])
			return exec.Command(b.upstream, "-listen", ports[0].String(), "-control", ports[1].String(), "-ttl", "3600"), nil
		},
	}
	var err error
	if u.Server, err = contender.Start(); err != nil {
		return nil, err
	}
	return u, u.WaitReady(ctx)
}

// tell sends a command to the upstream.
func (u *upstream) tell(ctx context.Context, command string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.control, strings.NewReader(command))
	if err != nil {
		return err
	}
	_, err = u.call(request)
	return err
}

// asked returns the number of queries received.
func (u *upstream) asked(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.control, nil)
	if err != nil {
		return 0, err
	}
	return u.call(request)
}

func (u *upstream) call(request *http.Request) (asked int, err error) {
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, err
	}
	if reply.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("an upstream: %s", body)
	}
	return strconv.Atoi(strings.TrimSpace(string(body)))
}

// tell sends a command to both upstreams.
func (st *stage) tell(ctx context.Context, command string) error {
	for _, u := range st.upstreams {
		if err := u.tell(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// asked returns the number of queries received by both upstreams.
func (st *stage) asked(ctx context.Context) (sum int, err error) {
	for _, u := range st.upstreams {
		n, err := u.asked(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// favorite returns the upstream that received more queries.
func (st *stage) favorite(ctx context.Context) (favorite *upstream, err error) {
	most := -1
	for _, u := range st.upstreams {
		n, err := u.asked(ctx)
		if err != nil {
			return nil, err
		}
		if n > most {
			favorite, most = u, n
		}
	}
	return favorite, nil
}
