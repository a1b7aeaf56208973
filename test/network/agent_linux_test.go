package network

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/wireguard"
	"portolan.dev/portolan/test/child"
	testwireguard "portolan.dev/portolan/test/wireguard"
)

// asAgent is the environment variable with the settings of a process that is an agent.
const asAgent = "PORTOLAN_TEST_NETWORK_AGENT"

func TestMain(m *testing.M) {
	if text := os.Getenv(asAgent); text != "" {
		if err := runAgent(text); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		return
	}
	if name := os.Getenv(asAnnouncer); name != "" {
		if err := runAnnouncer(name); err != nil {
			fmt.Fprintln(os.Stderr, "announcer:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// command changes what the agent knows of the cluster.
type command struct {
	Put    []*cluster.Node
	Delete []string
	// Ports are hostPorts of the node's Pod, unless they are nil.
	Ports []nft.Port
	// Remove has the agent remove from the kernel all that it programmed, and end.
	Remove bool
}

// answer says what became of a command.
type answer struct {
	Err string
	// Took is the time from the change of the model until the kernel has it.
	Took time.Duration
	// Local is what the own node has.
	Local route.Local
	// Removed is what was removed.
	Removed []string
	// Key is the public key of the node's end of encrypted tunnels.
	Key wireguard.Key
}

// agent is what runs in the process of an agent: the compiler and those who program the kernel.
type agent struct {
	store    *cluster.Store
	compiler *plan.Compiler
	router   *route.Router
	table    *nft.Table
	tunnels  *wireguard.Tunnels // nil without encryption
	synced   bool
}

func runAgent(settings string) error {
	var cfg plan.Config
	if err := json.Unmarshal([]byte(settings), &cfg); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	router, err := route.New(route.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer router.Close()
	a := &agent{store: cluster.NewStore(), compiler: plan.NewCompiler(cfg), router: router, table: nft.New(nft.Config{TunnelPort: cfg.Port})}
	defer a.table.Close()
	if cfg.Encryption == plan.WireGuard {
		if err := testwireguard.Open(route.DeviceWG, podMTU); err != nil {
			return err
		}
		a.tunnels = wireguard.New(wireguard.Config{Device: route.DeviceWG, Port: cfg.WireGuardPort})
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		if err := router.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "watching:", err)
		}
	})
	defer cancel()
	commands := make(chan command)
	go func() {
		defer close(commands)
		in := json.NewDecoder(bufio.NewReader(os.Stdin))
		for {
			var c command
			if err := in.Decode(&c); err != nil {
				return
			}
			commands <- c
		}
	}()
	return a.serve(ctx, commands)
}

func (a *agent) serve(ctx context.Context, commands <-chan command) error {
	out := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-ctx.Done():
			return nil
		case c, ok := <-commands:
			if !ok {
				return nil
			}
			if c.Remove {
				return out.Encode(a.remove())
			}
			begin := time.Now()
			err := a.change(c)
			reply := answer{Took: time.Since(begin), Local: a.compiler.State().Routes.Local}
			if a.tunnels != nil {
				reply.Key = a.tunnels.Key()
			}
			if err != nil {
				reply.Err = err.Error()
			}
			if err := out.Encode(reply); err != nil {
				return err
			}
		case <-a.router.HostChanged():
			if err := a.hostChanged(); err != nil {
				fmt.Fprintln(os.Stderr, "the host changed:", err)
			}
		}
	}
}

// change changes the model, and has the kernel follow.
func (a *agent) change(c command) error {
	var names []string
	a.store.Update(func(tx *cluster.Tx) {
		for _, n := range c.Put {
			tx.Put(n)
			names = append(names, n.Name)
		}
		for _, name := range c.Delete {
			tx.Delete(cluster.KindNode, cluster.Key{Name: name})
			names = append(names, name)
		}
	})
	if !a.synced {
		return a.syncAll()
	}
	if c.Ports != nil {
		return a.table.AddPorts("the Pod", c.Ports)
	}
	var changes *plan.Changes
	a.store.View(func(v *cluster.View) { changes = a.compiler.Apply(v, slices.Values(names)) })
	return a.apply(changes)
}

func (a *agent) apply(c *plan.Changes) error {
	err := errors.Join(a.router.Apply(&c.Routes), a.table.Apply(&c.Ranges))
	if a.tunnels != nil {
		err = errors.Join(err, a.tunnels.Apply(&c.Tunnels))
	}
	return err
}

// remove removes what agents left.
func (a *agent) remove() (reply answer) {
	a.table.Close()
	routes, err := route.Remove()
	tables, failed := nft.Cleanup(nft.DefaultName)
	if err = errors.Join(err, failed); err != nil {
		reply.Err = err.Error()
	}
	reply.Removed = append(routes, tables...)
	return reply
}

func (a *agent) syncAll() error {
	host, err := a.router.Host()
	if err != nil {
		return err
	}
	var s *plan.State
	a.store.View(func(v *cluster.View) { s = a.compiler.All(v, host) })
	a.synced = true
	err = errors.Join(a.router.Sync(&s.Routes), a.table.Sync(s.Ranges))
	if a.tunnels != nil {
		err = errors.Join(err, a.tunnels.Sync(s.Tunnels))
	}
	return err
}

func (a *agent) hostChanged() error {
	if !a.synced {
		return nil
	}
	host, err := a.router.Host()
	if err != nil {
		return err
	}
	return a.apply(a.compiler.SetHost(host))
}

// process is an agent as the test sees it.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	enc   *json.Encoder
	dec   *json.Decoder
	ended <-chan struct{}
}

// start starts the agent of a node.
func (n *node) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(n.config)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asAgent+"="+string(text))
	cmd.Stderr = n.log
	if n.config.Encryption == plan.WireGuard {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	ended, err := child.StartIn(n.ns.Do, cmd)
	must(t, err)
	p := &process{cmd: cmd, in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out), ended: ended}
	n.process = p
}

// kill kills the agent of a node.
func (n *node) kill() {
	if n.process != nil {
		_ = n.process.cmd.Process.Kill()
		<-n.process.ended
		n.process = nil
	}
}

// tell has the agent change its model.
func (n *node) tell(t *testing.T, c command) answer {
	t.Helper()
	a, err := n.try(t, c)
	must(t, err)
	return a
}

// try is tell, and returns the agent's error: while links change, some routes cannot be programmed.
func (n *node) try(t *testing.T, c command) (a answer, err error) {
	t.Helper()
	must(t, n.process.enc.Encode(c))
	must(t, n.process.dec.Decode(&a))
	if a.Err != "" {
		err = fmt.Errorf("%s: %s", n.name, a.Err)
	}
	return a, err
}
