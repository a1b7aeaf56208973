//go:build linux

package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/upstream/cri"
)

// Main runs a node or a container if the process was started for that, and returns at once
// otherwise.
func Main() {
	cri.Main()
	if len(os.Args) != 2 || os.Args[1] != argument {
		return
	}
	if err := run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run reads the configuration, runs the node and returns when the input ends.
func run(input io.Reader) error {
	from := bufio.NewReader(input)
	text, err := from.ReadBytes('\n')
	if err != nil {
		return err
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	if err := errors.Join(c.makeFiles(), c.makeNetwork()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = from.ReadByte() // nothing comes but the end
		stop()
	}()
	return c.runPrograms(ctx)
}

// directories are those of this machine in whose place the node has its own.
var directories = []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers"}

// The directories of the network of Pods that plugins make, where installers have them.
const (
	confDir, binDir = "/etc/cni/net.d", "/opt/cni/bin"
	agentDir        = "/run/portolan"
	namespaces      = "/var/run/netns" // as containerd and CRI-O have it
)

// settings of the kernel that a kubelet changes for the whole machine, and to what. The node has
// files in their place.
var settings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// makeFiles gives the node directories of its own in place of the machine's.
func (c *Config) makeFiles() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	all := directories
	if c.hasPlugins() {
		all = slices.Concat(directories, []string{confDir, binDir, agentDir, namespaces})
	}
	for _, dir := range all {
		if err := c.makeDirectory(dir); err != nil {
			return err
		}
	}
	for name, value := range settings {
		own := filepath.Join(c.Dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(own, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(own, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return &os.PathError{Op: "mount", Path: name, Err: err}
		}
	}
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(c.Name)))
}

// makeDirectory gives the node a directory of its own in place of the machine's. Containers see what is mounted there.
func (c *Config) makeDirectory(dir string) error {
	own := filepath.Join(c.Dir, filepath.Base(dir))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Mkdir(own, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount(own, dir, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount", Path: dir, Err: err}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return &os.PathError{Op: "mount", Path: dir, Err: err}
	}
	return nil
}

// makeNetwork configures the node's end of its link. The node forwards, and its addresses are
// usable at once.
func (c *Config) makeNetwork() error {
	for _, name := range []string{
		"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/default/forwarding",
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte("1"), 0); err != nil {
			return err
		}
	}
	commands := []string{"link set lo up", "link set eth0 up"}
	for _, a := range c.Addresses {
		commands = append(commands, "address add "+a.String()+" dev eth0"+nodad(a.Addr()))
	}
	for _, gateway := range c.Gateways {
		commands = append(commands, "route add default via "+gateway.String())
	}
	return namespace.IP(commands...)
}

// nodad is the flag with which ip(8) adds an address of IPv6 that is usable at once.
func nodad(addr netip.Addr) string {
	if addr.Is6() {
		return " nodad"
	}
	return ""
}

// runPrograms runs the runtime, the kubelet and the proxy until ctx is done or one of them ends.
func (c *Config) runPrograms(ctx context.Context) error {
	socket := filepath.Join(c.Dir, "cri.sock")
	containers := filepath.Join(c.Dir, "containers-data")
	if err := os.Mkdir(containers, 0o755); err != nil {
		return err
	}
	runtime, err := cri.New(cri.Config{
		Socket: socket, Streams: netip.MustParseAddrPort("127.0.0.1:10350"), Dir: containers, Images: c.Images,
		PodCIDRs: c.PodCIDRs, Plugin: c.Plugin, CNI: c.cni(),
	})
	if err != nil {
		return err
	}
	serving, end := context.WithCancel(context.Background())
	defer end()
	served := make(chan error, 1)
	go func() { served <- runtime.Run(serving) }()
	kubelet, err := c.startKubelet(socket)
	if err != nil {
		return err
	}
	programs := []*process.Process{kubelet}
	if len(c.Proxy) > 0 {
		proxy, err := c.startProxy()
		if err != nil {
			return err
		}
		programs = append(programs, proxy)
	}
	err = c.wait(ctx, served, programs...)
	const grace = 2 * time.Second
	for _, p := range programs {
		p.Stop(grace)
	}
	end()
	return errors.Join(err, <-served)
}

// wait waits until ctx is done, and starts programs again that end. It returns an error if the
// runtime fails.
func (c *Config) wait(ctx context.Context, served chan error, programs ...*process.Process) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			served <- nil // for the one who ends it
			return err
		case <-tick.C:
		}
		for _, p := range programs {
			if p.Running() {
				continue
			}
			fmt.Printf("%s ended: %s; it is started again\n", filepath.Base(p.Path), p.State())
			if err := p.Start(); err != nil {
				return err
			}
		}
	}
}

// cni is the network of plugins, or nil.
func (c *Config) cni() *cri.CNI {
	if !c.hasPlugins() {
		return nil
	}
	return &cri.CNI{
		ConfDir: confDir, BinDir: binDir, CacheDir: filepath.Join(c.Dir, "cni-cache"), Namespaces: namespaces,
	}
}

func (c *Config) startProxy() (*process.Process, error) {
	p := &process.Process{Path: c.Proxy[0], Args: c.Proxy[1:], Log: filepath.Join(c.Dir, "proxy.log")}
	return p, p.Start()
}

func (c *Config) startKubelet(socket string) (*process.Process, error) {
	config, err := json.Marshal(c.kubeletConfig(socket))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.resolvConf(), []byte("nameserver "+c.Gateways[0].String()+"\n"), 0o644); err != nil {
		return nil, err
	}
	file := filepath.Join(c.Dir, "kubelet.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	var addresses []string
	for _, a := range c.Addresses {
		addresses = append(addresses, a.Addr().String())
	}
	p := &process.Process{
		Path: c.Kubelet,
		Args: []string{
			"--config=" + file, "--kubeconfig=" + c.Kubeconfig, "--hostname-override=" + c.Name,
			"--node-ip=" + strings.Join(addresses, ","), "--v=2",
		},
		Log: filepath.Join(c.Dir, "kubelet.log"),
	}
	return p, p.Start()
}

// resolvConf is the file with the node's own resolver, which knows no name outside of the cluster, if there is one.
func (c *Config) resolvConf() string { return filepath.Join(c.Dir, "resolv.conf") }

// kubeletConfig is a KubeletConfiguration (kubelet.config.k8s.io/v1beta1). Nobody else reaches
// the node's network, so clients need no credentials; nothing is limited, since the machine has
// other work.
func (c *Config) kubeletConfig(socket string) map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false},
		},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"containerRuntimeEndpoint": "unix://" + socket,
		"clusterDNS":               []string{c.ClusterDNS.String()},
		"clusterDomain":            "cluster.local",
		"resolvConf":               c.resolvConf(),
		"cgroupsPerQOS":            false,
		"enforceNodeAllocatable":   []string{},
		"failSwapOn":               false,
		"failCgroupV1":             false,
		"volumePluginDir":          filepath.Join(c.Dir, "volume-plugins"),
		// The others have no thresholds then: the disk of the machine is as full as it is.
		"evictionHard":                map[string]string{"memory.available": "1Mi"},
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"registerWithTaints":          []any{},
	}
}
