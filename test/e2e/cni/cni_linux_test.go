package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// addresses are those of the device eth0 of a Pod, without those of links.
func (p pod) addresses() (addrs []netip.Addr, err error) {
	err = p.net.Do(func() error {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all, err := device.Addrs()
		for _, a := range all {
			if prefix := netip.MustParsePrefix(a.String()); !prefix.Addr().IsLinkLocalUnicast() {
				addrs = append(addrs, prefix.Addr())
			}
		}
		return err
	})
	return addrs, err
}

// TestVersions: in each version, and behind each kind of network, a Pod starts when it is admitted with the
// addresses that the plugin before gave it, and not before.
func TestVersions(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	for _, test := range []struct{ kind, version string }{
		{"ptp", "0.3.1"}, {"ptp", "0.4.0"}, {"ptp", "1.0.0"}, {"ptp", "1.1.0"}, {"bridge", "1.0.0"},
	} {
		t.Run(test.kind+" "+test.version, func(t *testing.T) {
			r, p := newRuntime(t, test.kind, test.version), newPod(t, "web")
			entered, open := make(chan cni.Attachment, 1), make(chan struct{})
			g := &gate{admit: func(_ context.Context, a cni.Attachment) error {
				entered <- a
				<-open
				return nil
			}}
			r.serve(t, g, nil)
			var addrs []netip.Addr
			result := make(chan error, 1)
			go func() {
				var err error
				addrs, err = r.add(t.Context(), p)
				result <- err
			}()
			var asked cni.Attachment
			select {
			case asked = <-entered:
			case err := <-result:
				t.Fatalf("ADD: %v before the Pod is admitted", err)
			}
			if has, err := p.addresses(); err != nil || !same(has, asked.Addresses) || len(has) != 2 {
				t.Errorf("asked to admit %v, the Pod has %v, %v", asked.Addresses, has, err)
			}
			want := attach.Sandbox{
				ID: attach.ID{ContainerID: "sandbox-of-web", Interface: "eth0"}, Network: "pods", NetNS: p.net.Path(),
				Namespace: "shop", Name: "web", UID: "uid-of-web",
			}
			if asked.Sandbox != want {
				t.Errorf("asked to admit %+v, want %+v", asked.Sandbox, want)
			}
			select {
			case err := <-result:
				t.Fatalf("ADD: %v while the Pod is not admitted", err)
			case <-time.After(200 * time.Millisecond):
			}
			close(open)
			if err := <-result; err != nil || !same(addrs, asked.Addresses) {
				t.Fatalf("ADD: %v, %v, want %v", addrs, err, asked.Addresses)
			}
			if test.version != "0.3.1" { // which has no CHECK
				must(t, r.cni.CheckNetworkList(t.Context(), r.list, p.conf()))
				g.check = errors.New("its chains are missing")
				wantCode(t, "CHECK", r.cni.CheckNetworkList(t.Context(), r.list, p.conf()), 100, "Pod shop/web: its chains are missing")
			}
			must(t, r.cni.DelNetworkList(t.Context(), r.list, p.conf()))
			if left := g.all(); len(left) > 0 {
				t.Errorf("after DEL: %q", left)
			}
			must(t, r.cni.DelNetworkList(t.Context(), r.list, p.conf())) // as runtimes repeat it
		})
	}
}

func same(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}

// TestAgentAway: no Pod starts without the agent, and each can end.
func TestAgentAway(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	r := newRuntime(t, "ptp", "1.1.0")
	stop := r.serve(t, new(gate), nil)
	old, fresh := newPod(t, "old"), newPod(t, "fresh")
	_, err := r.add(t.Context(), old)
	must(t, err)
	stop()
	const away = "the agent does not answer at "
	begin := time.Now()
	_, err = r.add(t.Context(), fresh)
	wantCode(t, "ADD", err, types.ErrTryAgainLater, "portolan: Pod shop/fresh does not start without its policies: "+away)
	t.Logf("ADD fails after %s: %v", time.Since(begin), err)
	must(t, r.cni.DelNetworkList(t.Context(), r.list, fresh.conf())) // as runtimes do then
	wantCode(t, "CHECK", r.cni.CheckNetworkList(t.Context(), r.list, old.conf()), types.ErrTryAgainLater, away)
	wantCode(t, "STATUS", r.cni.GetStatusNetworkList(t.Context(), r.list), 50, away)
	record := filepath.Join(attach.Records(r.socket), "sandbox-of-old,eth0")
	if _, err := os.Stat(record); err != nil {
		t.Errorf("the record of a Pod that runs: %v", err)
	}
	must(t, r.cni.DelNetworkList(t.Context(), r.list, old.conf()))
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of a Pod that has ended: %v", err)
	}

	// The agent comes back while a Pod waits.
	result := make(chan error, 1)
	go func() {
		_, err := r.add(t.Context(), fresh)
		result <- err
	}()
	g := new(gate)
	r.serve(t, g, nil)
	must(t, <-result)
	if got := g.all(); !slices.Equal(got, []string{"fresh"}) {
		t.Errorf("admitted: %q, want fresh", got)
	}
}

// TestNoAnswer: an agent that does not answer delays a Pod for a bounded time.
func TestNoAnswer(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	r := newRuntime(t, "ptp", "1.0.0")
	g := &gate{admit: func(ctx context.Context, _ cni.Attachment) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	r.serve(t, g, nil)
	begin := time.Now()
	_, err := r.add(t.Context(), newPod(t, "web"))
	wantCode(t, "ADD", err, types.ErrTryAgainLater, "the policies are not in the kernel in time")
	if took := time.Since(begin); took > await.Patience {
		t.Errorf("ADD took %s", took)
	}
}

func TestStatus(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	r := newRuntime(t, "ptp", "1.1.0")
	var mu sync.Mutex
	problem := errors.New("the policies are not known yet")
	r.serve(t, new(gate), func() error {
		mu.Lock()
		defer mu.Unlock()
		return problem
	})
	wantCode(t, "STATUS", r.cni.GetStatusNetworkList(t.Context(), r.list), 50, "portolan: the policies are not known yet")
	mu.Lock()
	problem = nil
	mu.Unlock()
	must(t, r.cni.GetStatusNetworkList(t.Context(), r.list))
}

// TestGC: what the runtime does not know any more is released.
func TestGC(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	r := newRuntime(t, "ptp", "1.1.0")
	g := new(gate)
	r.serve(t, g, nil)
	for _, name := range []string{"lost", "web"} {
		_, err := r.add(t.Context(), newPod(t, name))
		must(t, err)
	}
	valid := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "sandbox-of-web", IfName: "eth0"}}}
	must(t, r.cni.GCNetworkList(t.Context(), r.list, valid))
	if got := g.all(); !slices.Equal(got, []string{"web"}) {
		t.Errorf("after GC: %q, want web", got)
	}
}

// TestStartsEarly: the plugin has done its work before the packages of the rest of the program are initialized.
// This is why it starts in a third of the time.
func TestStartsEarly(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, "ptp", "1.0.0")
	initialized := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), r.plugin, args...)
		cmd.Env = append(os.Environ(), "CNI_COMMAND=VERSION", "GODEBUG=inittrace=1")
		var trace bytes.Buffer
		cmd.Stderr = &trace
		must(t, cmd.Run())
		return trace.Bytes()
	}
	for _, costly := range []string{"init net @", "init k8s.io/client-go/", "init github.com/prometheus/client_golang/"} {
		if !bytes.Contains(initialized("version"), []byte(costly)) {
			t.Errorf("%q is not in the trace of another command", costly)
		}
		if bytes.Contains(initialized("cni"), []byte(costly)) {
			t.Errorf("the plugin waits for: %s", costly)
		}
	}
}

// TestAlone: the plugin gives no addresses.
func TestAlone(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	r := newRuntime(t, "ptp", "1.0.0")
	r.serve(t, new(gate), nil)
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil,
		`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "portolan", "socket": %q}]}`, r.socket,
	))
	must(t, err)
	_, err = r.cni.AddNetworkList(t.Context(), list, newPod(t, "web").conf())
	wantCode(t, "ADD", err, types.ErrInvalidNetworkConfig, "this agent makes no network (part network of node.parts)")
	p := newPod(t, "none").conf()
	p.Args = nil
	_, err = r.cni.AddNetworkList(t.Context(), r.list, p)
	wantCode(t, "ADD without a Pod", err, types.ErrInvalidEnvironmentVariables, "policies are for Pods of Kubernetes")
}

// TestHundredAtOnce starts and ends 100 Pods at once.
func TestHundredAtOnce(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	const n = 100
	r := newRuntime(t, "ptp", "1.0.0")
	var mu sync.Mutex
	seen := make(map[netip.Addr]string)
	g := &gate{admit: func(_ context.Context, a cni.Attachment) error {
		mu.Lock()
		defer mu.Unlock()
		for _, addr := range a.Addresses {
			if other, ok := seen[addr]; ok {
				return fmt.Errorf("%s has the address of %s", a.Name, other)
			}
			seen[addr] = a.Name
		}
		return nil
	}}
	r.serve(t, g, nil)
	each := func(do func(pod) error) {
		t.Helper()
		var all sync.WaitGroup
		for i := range n {
			p := newPod(t, fmt.Sprint("web-", i))
			all.Go(func() {
				if err := do(p); err != nil {
					t.Errorf("%s: %v", p.name, err)
				}
			})
		}
		all.Wait()
	}
	each(func(p pod) error {
		_, err := r.add(t.Context(), p)
		return err
	})
	if got := len(g.all()); got != n {
		t.Errorf("%d Pods are admitted, want %d", got, n)
	}
	each(func(p pod) error { return r.cni.DelNetworkList(t.Context(), r.list, p.conf()) })
	await.NoError(t, func() error { // DEL does not wait long for a busy agent
		if left := g.all(); len(left) > 0 {
			return fmt.Errorf("%d Pods are left", len(left))
		}
		return nil
	})
}
