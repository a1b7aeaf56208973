//go:build linux

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/upstream/cri"
	"portolan.dev/portolan/test/upstream/image"
)

// Config describes a node.
type Config struct {
	Name string
	// Dir gets logs and containers; it is empty. Its path is short, because that of a socket may
	// have 108 octets.
	Dir        string
	Kubeconfig string // an administrator's
	// Addresses are those on the cluster's network, at most one of each family.
	Addresses []netip.Prefix
	Gateways  []netip.Addr // the routes to all others, of the same families
	// PodCIDRs are the ranges of which the runtime makes the network of Pods, of the same families. Without any,
	// CNI plugins make it, which an agent installs where package cri's CNI looks for them.
	PodCIDRs []netip.Prefix
	// ClusterDNS is the address of the cluster's DNS server.
	ClusterDNS netip.Addr
	Images     image.Store
	Kubelet    string      // file
	Proxy      []string    // the command of the service proxy; without it, none is started
	Plugin     *cri.Plugin // nil: there is none
}

func (c *Config) hasPlugins() bool { return len(c.PodCIDRs) == 0 }

// argument is the first argument of a node's process.
const argument = "node-main"

// Node is a running node.
type Node struct {
	config Config
	cmd    *exec.Cmd
	stdin  *os.File
	ended  chan error
}

// Start starts a node, whose link is a port of the bridge. It ends with this process.
func Start(config Config, bridge string) (*Node, error) {
	n := &Node{config: config, ended: make(chan error, 1)}
	err := n.run()
	if err == nil {
		err = n.connect(bridge)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", config.Name, err)
	}
	return n, nil
}

// run starts the process, which waits until connect tells it the configuration.
func (n *Node) run() error {
	log, err := os.Create(n.Log())
	if err != nil {
		return err
	}
	stdin, write, err := os.Pipe()
	if err != nil {
		return err
	}
	n.stdin = write
	n.cmd = exec.Command("/proc/self/exe", argument)
	n.cmd.Stdin, n.cmd.Stdout, n.cmd.Stderr = stdin, log, log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS, Setpgid: true, Pdeathsig: syscall.SIGKILL,
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the process is told of the death of the thread that started it
		defer runtime.UnlockOSThread()
		err := n.cmd.Start()
		stdin.Close()
		log.Close()
		started <- err
		if err == nil {
			n.ended <- n.cmd.Wait()
		}
	}()
	return <-started
}

// connect makes the node's link and tells the process that it is there.
func (n *Node) connect(bridge string) error {
	link := "to-" + n.config.Name
	if err := namespace.IP(
		"link add "+link+" type veth peer name eth0 netns "+strconv.Itoa(n.cmd.Process.Pid),
		"link set "+link+" master "+bridge+" up",
	); err != nil {
		return err
	}
	text, err := json.Marshal(n.config)
	if err != nil {
		return err
	}
	_, err = n.stdin.Write(append(text, '\n'))
	return err
}

// Log is the file of what the node's process prints. Those of its programs are beside it.
func (n *Node) Log() string { return filepath.Join(n.config.Dir, "node.log") }

// Close ends the node, its Pods first.
func (n *Node) Close() error {
	n.stdin.Close()
	err := <-n.ended
	// The kernel ends the namespace, and with it the link, some time after the process, if it has not yet.
	_ = namespace.IP("link del to-" + n.config.Name)
	if err != nil {
		text, _ := os.ReadFile(n.Log()) // else the error alone is reported
		err = fmt.Errorf("node %s: %w\n%s", n.config.Name, err, bytes.TrimSpace(text))
	}
	return err
}
