package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"portolan.dev/portolan/test/namespace"
)

// plugin is an element of a network's list of plugins.
type plugin struct {
	conf  map[string]any
	ports bool // it has the capability portMappings
}

// pod is a sandbox.
type pod struct {
	id       string
	network  *namespace.Network
	hostPort int             // 0 is none
	result   json.RawMessage // of ADD; nil before
	addrs    []netip.Addr    // of each family
}

// newPod makes a sandbox. With checks, the kernel looks for duplicates of its addresses, as is the default.
func newPod(id string, hostPort int, checks bool) (*pod, error) {
	network, err := namespace.New()
	if err != nil {
		return nil, err
	}
	p := &pod{id: id, network: network, hostPort: hostPort}
	if !checks {
		err = network.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
		})
	}
	return p, err
}

// spent is what a command for a Pod took.
type spent struct {
	took      time.Duration
	processor time.Duration // of the plugins
	agent     time.Duration // its processor time meanwhile
}

// version is that of the CNI specification.
const version = "1.1.0"

// call runs a plugin for a Pod, or none, as a container runtime does. The caller's thread is in the node.
func (n *node) call(command string, pl plugin, p *pod) (processor time.Duration, err error) {
	const longest = 30 * time.Second
	conf := maps.Clone(pl.conf)
	conf["cniVersion"], conf["name"] = version, "pods"
	kind, _ := conf["type"].(string)
	environment := []string{"CNI_COMMAND=" + command, "CNI_PATH=" + n.bin(), "PATH=" + os.Getenv("PATH")}
	if p != nil {
		if pl.ports && p.hostPort != 0 {
			const port = 80
			conf["runtimeConfig"] = map[string]any{"portMappings": []any{
				map[string]any{"hostPort": p.hostPort, "containerPort": port, "protocol": "tcp"},
			}}
		}
		if p.result != nil {
			conf["prevResult"] = p.result
		}
		environment = append(environment, "CNI_CONTAINERID="+p.id, "CNI_IFNAME=eth0", "CNI_NETNS="+p.network.Path(),
			fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=%[1]s;K8S_POD_UID=%[1]s", p.id))
	}
	text, err := json.Marshal(conf)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(n.bin(), kind))
	cmd.Env, cmd.Stdin = environment, bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w: %s", command, kind, err, strings.TrimSpace(string(out)))
	}
	if command == "ADD" {
		p.result = out
	}
	// The usage includes that of the processes that it waited for, getrusage(2).
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, errors.New("the usage of a process is unknown")
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// run runs all plugins of the list, in this order.
func (n *node) run(command string, list []plugin, p *pod) (s spent, err error) {
	before, err := n.agentTime()
	if err != nil {
		return s, err
	}
	began := time.Now()
	for _, pl := range list {
		processor, err := n.call(command, pl, p)
		if err != nil {
			return s, err
		}
		s.processor += processor
	}
	s.took = time.Since(began)
	after, err := n.agentTime()
	s.agent = after - before
	return s, err
}

// add gives a Pod its network. The caller's thread is in the node.
func (n *node) add(p *pod) (spent, error) {
	s, err := n.run("ADD", n.list, p)
	if err != nil {
		return s, err
	}
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(p.result, &result); err != nil {
		return s, fmt.Errorf("result: %w", err)
	}
	p.addrs = nil
	for _, ip := range result.IPs {
		p.addrs = append(p.addrs, ip.Address.Addr())
	}
	if len(p.addrs) != len(podRanges(n.index)) {
		return s, fmt.Errorf("the Pod has the addresses %v", p.addrs)
	}
	return s, nil
}

// del ends a Pod's network. The caller's thread is in the node.
func (n *node) del(p *pod) (spent, error) {
	backwards := slices.Clone(n.list)
	slices.Reverse(backwards)
	s, err := n.run("DEL", backwards, p)
	p.result = nil
	return s, err
}
