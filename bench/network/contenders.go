package network

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/await"
)

// The names of contenders.
const (
	nameReference = "ptp"
	nameFlannel   = "flannel"
	namePortolan  = "portolan"
)

// way is how packets get to other nodes.
type way string

const (
	direct way = "direct"
	tunnel way = "VXLAN"
)

func ways() []way { return []way{direct, tunnel} }

// mtu is that of Pods: what a tunnel adds is 50 octets (RFC 7348, section 4).
func (w way) mtu() int {
	const uplink, added = 1500, 50
	if w == tunnel {
		return uplink - added
	}
	return uplink
}

// contender is a network of Pods.
type contender struct {
	name     string
	programs []string // of package rig
	// plugins returns the plugins of the network's list, in order.
	plugins func(*node) []plugin
	// start starts the agent, and returns when it is ready; nil is no agent.
	start func(context.Context, *node) error
	// link makes the routes from a node to another one, if there is no agent.
	link func(from, to *node) error
}

func contenders() []*contender {
	return []*contender{
		{
			name: nameReference, programs: []string{rig.NamePTP, rig.NameHostLocal, rig.NamePortMap},
			plugins: referencePlugins, link: linkByHand,
		},
		{
			name: nameFlannel, programs: []string{rig.NameBridge, rig.NameHostLocal, rig.NamePortMap, rig.NameFlannel},
			plugins: flannelPlugins, start: startFlannel,
		},
		{name: namePortolan, programs: []string{rig.NamePortolan}, plugins: portolanPlugins, start: startPortolan},
	}
}

// build builds the programs of contenders. Their files in the directory bin have the names of plugins' types.
func (b *bench) build(ctx context.Context, all []*result) error {
	workshop, err := rig.NewWorkshop(ctx, b.log, b.dir)
	if err != nil {
		return err
	}
	if err := os.Mkdir(b.bin(), 0o755); err != nil {
		return err
	}
	b.programs = make(map[string]*rig.Program)
	for _, r := range all {
		for _, name := range r.programs {
			if b.programs[name] != nil {
				continue
			}
			if b.programs[name], err = workshop.Program(ctx, name); err != nil {
				return fmt.Errorf("build %s: %w", name, err)
			}
			b.versions = append(b.versions, name+" "+b.programs[name].Version)
			if err := os.Symlink(b.programs[name].Path(), filepath.Join(b.bin(), name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// bin has the plugins.
func (b *bench) bin() string { return filepath.Join(b.dir, "bin") }

// addressPlugin returns the configuration of host-local, with the destinations that Pods have routes to.
func (n *node) addressPlugin(to ...string) map[string]any {
	var ranges, routes []any
	for _, r := range podRanges(n.index) {
		ranges = append(ranges, []any{map[string]any{"subnet": r.String()}})
	}
	for _, dst := range to {
		routes = append(routes, map[string]any{"dst": dst})
	}
	return map[string]any{
		"type": "host-local", "dataDir": filepath.Join(n.dir, "addresses"), "ranges": ranges,
		"routes": routes,
	}
}

func referencePlugins(n *node) []plugin {
	return []plugin{
		{conf: map[string]any{"type": "ptp", "mtu": n.way.mtu(), "ipam": n.addressPlugin("0.0.0.0/0", "::/0")}},
		{conf: map[string]any{"type": "portmap"}, ports: true},
	}
}

// flannelPlugins returns what flannel's plugin, with the configuration that flannel ships, has the plugin bridge
// do (Documentation/kube-flannel.yml).
func flannelPlugins(n *node) []plugin {
	return []plugin{
		{conf: map[string]any{
			"type": "bridge", "mtu": n.way.mtu(), "ipam": n.addressPlugin(podRange4, podRange6),
			"isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
		}},
		{conf: map[string]any{"type": "portmap"}, ports: true},
	}
}

func portolanPlugins(n *node) []plugin {
	return []plugin{{conf: map[string]any{"type": "portolan", "socket": n.socket()}, ports: true}}
}

// startTime is how long an agent may take until it is ready.
const startTime = time.Minute

// startPortolan starts the agent, and waits until its plugin says that it is ready.
func startPortolan(_ context.Context, n *node) error {
	encapsulation := map[way]string{direct: "never", tunnel: "always"}[n.way]
	config := filepath.Join(n.dir, "portolan.yaml")
	text := fmt.Sprintf("network: {encapsulation: %s, cni: {socket: %s, install: false}}\nproxy: {nodeName: %s}\n",
		encapsulation, n.socket(), nodeName(n.index))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	err := n.startAgent(n.programs[rig.NamePortolan].Command(
		"node", "--parts", "network", "--kubeconfig", n.kubeconfig(), "--config", config,
	))
	if err != nil {
		return err
	}
	return n.ready(func() error {
		return n.network.Do(func() error { _, err := n.call("STATUS", n.list[0], nil); return err })
	})
}

func (n *node) socket() string { return filepath.Join(n.dir, "cni.sock") }

// startFlannel starts the daemon, and waits until it has written the file that its plugin reads.
func startFlannel(_ context.Context, n *node) error {
	conf := map[string]any{
		"Network": podRange4, "IPv6Network": podRange6, "EnableIPv6": true, "EnableNFTables": true,
		"Backend": map[string]any{"Type": flannelType(n.way)},
	}
	text, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	file, env := filepath.Join(n.dir, "net-conf.json"), filepath.Join(n.dir, "subnet.env")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	cmd := n.programs[rig.NameFlannel].Command(
		"-kubeconfig-file", n.kubeconfig(), "-net-config-path", file, "-iface", uplink, "-subnet-file", env,
	)
	cmd.Env = append(os.Environ(), "NODE_NAME="+nodeName(n.index))
	if err := n.startAgent(cmd); err != nil {
		return err
	}
	return n.ready(func() error { _, err := os.Stat(env); return err })
}

func flannelType(w way) string { return map[way]string{direct: "host-gw", tunnel: "vxlan"}[w] }

// flannelAnnotations are what flannel's daemon on a node says to the others. The daemon writes none if they are
// right.
func flannelAnnotations(i int, w way) map[string]string {
	const prefix = "flannel.alpha.coreos.com/"
	addrs := nodeAddrs(i)
	all := map[string]string{
		"backend-type": flannelType(w), "kube-subnet-manager": "true", "public-ip": addrs[0].String(),
		"public-ipv6": addrs[1].String(), "backend-data": "null", "backend-v6-data": "null",
	}
	if w == tunnel {
		const network = 1 // the default
		for _, name := range []string{"backend-data", "backend-v6-data"} {
			all[name] = fmt.Sprintf(`{"VNI":%d,"VtepMAC":%q}`, network, tunnelMAC(i, len(name)))
		}
	}
	annotations := make(map[string]string)
	for name, value := range all {
		annotations[prefix+name] = value
	}
	return annotations
}

// ready waits until check returns nil.
func (n *node) ready(check func() error) error {
	if err := await.Within(startTime, check); err != nil {
		return fmt.Errorf("%s is not ready: %w\n%s", n.contender.name, err, n.agent.lastWords())
	}
	return nil
}
