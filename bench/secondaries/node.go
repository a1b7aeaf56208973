package secondaries

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// node is the cost of the agent on a node.
type node struct {
	loaded, most float64 // MiB: some seconds after it was ready, and the maximum
	after        float64 // MiB, after changes
	used         float64 // share of a processor, during changes

}

// settle is the time after a start when memory is read. Memory that only loading needed
// has been released by then.
const settle = 5 * time.Second

// startNode starts an agent that follows the server, and waits until it has settled.
// The cluster does not change meanwhile.
func (w *world) startNode(ctx context.Context) (n node, err error) {
	config := filepath.Join(w.dir, "node.yaml")
	text := fmt.Sprintf("dns:\n  transfer: {keys: [%s]}\nnode: {mode: secondary, servers: [%q], key: %s}\n",
		w.key.settings(), w.server.DNS, w.key.Name)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return n, err
	}
	agent := rig.Contender{Name: "the agent", Ready: rig.OverHTTP("/readyz"), Log: filepath.Join(w.dir, "node.log"),
		Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
			return w.portolan.Command("node", "--config", config, "--listen", w.nodeAt.String(), "--admin",
				ports[1].String()), nil
		}}
	w.nodePort.Close()
	if w.node, err = agent.Start(); err != nil {
		return n, err
	}
	if err := w.node.WaitReady(ctx); err != nil {
		return n, err
	}
	time.Sleep(settle)
	n.loaded, n.most, err = w.node.Memory()
	return n, err
}

// finishNode records the cost of the agent during the measurement.
func (w *world) finishNode(n *node, m *window) (err error) {
	n.used = m.node.Seconds() / m.took.Seconds()

	n.after, _, err = w.node.Memory()
	return err
}

// agree waits until the agent has the server's version of the zone, and compares their
// answers for new endpoints.
func (w *world) agree(ctx context.Context) error {
	const compared = 500
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done, err := w.upToDate()
		if err != nil {
			return err
		}
		if done {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent does not catch up: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, name := range w.churn.last(compared) {
		server, err := ask(w.server.DNS, name, dnswire.TypeA)
		if err != nil {
			return err
		}
		copied, err := ask(w.nodeAt, name, dnswire.TypeA)
		if err != nil {
			return err
		}
		if len(server) == 0 || !slices.Equal(server, copied) {
			return fmt.Errorf("%s: the server answers %q, the agent %q", name, server, copied)
		}
	}
	return nil
}

// upToDate reports whether the server has the last change and the agent has the
// server's serial.
func (w *world) upToDate() (bool, error) {
	last, err := ask(w.server.DNS, w.churn.last(1)[0], dnswire.TypeA)
	if err != nil {
		return false, err
	}
	server, err := ask(w.server.DNS, apex.String(), dnswire.TypeSOA)
	if err != nil {
		return false, err
	}
	copied, err := ask(w.nodeAt, apex.String(), dnswire.TypeSOA)
	return len(last) > 0 && slices.Equal(server, copied), err
}

// ask sends a query to a server and returns the sorted RDATA of the answer.
func ask(server netip.AddrPort, name string, t dnswire.Type) (rdata []string, err error) {
	query, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: t})
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	var packet [dnswire.MaxMessage]byte
	n, err := conn.Read(packet[:])
	if err != nil {
		return nil, err
	}
	reply, err := dnswire.ParseReply(packet[:n])
	if err != nil {
		return nil, err
	}
	for rec := range reply.Records {
		if rec.Section == dnswire.Answer {
			rdata = append(rdata, string(rec.AppendRData(nil)))
		}
	}
	slices.Sort(rdata)
	return rdata, nil
}
