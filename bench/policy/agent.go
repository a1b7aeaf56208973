package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/sender"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/netns/nodes"
)

// agent is the agent of a node with the part policy, the whole program, and its API server.
type agent struct {
	node            node
	program, socket string
	world           *nodes.Router
	api             *fakeapi.Server
	process         *nodes.Process
}

// startTime is how long the agent may take until the kernel has the policies.
const startTime = 2 * time.Minute

// newAgent starts the agent of a node, and waits until the kernel has the policies. Close it.
func (b *bench) newAgent(n node) (*agent, error) {
	dir, err := os.MkdirTemp(b.dir, "agent-")
	if err != nil {
		return nil, err
	}
	a := &agent{node: n, program: b.portolan.Path(), socket: filepath.Join(dir, "cni.sock")}
	if err := a.start(dir); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *agent) start(dir string) (err error) {
	a.world, err = nodes.NewRouter(netip.MustParsePrefix(sender.Range), netip.MustParsePrefix(localRange))
	if err != nil {
		return err
	}
	err = a.world.Node.Do(func() error {
		a.api, err = fakeapi.New(&synthetic.Cluster{Namespaces: 1})
		return err
	})
	if err != nil {
		return err
	}
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "portolan.yaml")
	text := fmt.Sprintf("policy: {cni: {socket: %s}}\nproxy: {nodeName: %s}\n", a.socket, nodeName)
	err = errors.Join(
		a.node.eachPod(a.api.Create), eachPolicy(a.api.Create),
		a.api.Kubeconfig(kubeconfig), os.WriteFile(config, []byte(text), 0o600),
	)
	if err != nil {
		return err
	}
	a.process, err = a.world.Node.Start(filepath.Join(dir, "log"), a.program,
		"node", "--parts", "policy", "--kubeconfig", kubeconfig, "--config", config)
	if err != nil {
		return err
	}
	if err := await.Within(startTime, func() error { return a.call("STATUS", nil) }); err != nil {
		return fmt.Errorf("not within %s: %w\n%s", startTime, err, a.process.Log())
	}
	return nil
}

func (a *agent) close() (err error) {
	if a.process != nil {
		err = a.process.Stop()
	}
	if a.api != nil {
		err = errors.Join(err, a.api.Close())
	}
	if a.world != nil {
		a.world.Close()
	}
	return err
}

// processor returns the agent's processor time since its start.
func (a *agent) processor() (time.Duration, error) { return rig.ProcessorTime([]int{a.process.PID()}) }

// call calls the CNI plugin for a Pod, or none, as a container runtime does.
func (a *agent) call(command string, p *corev1.Pod) error {
	const longest = 30 * time.Second
	conf := map[string]any{"cniVersion": "1.1.0", "name": "pods", "type": "portolan", "socket": a.socket}
	environment := []string{"CNI_COMMAND=" + command, "CNI_PATH=" + filepath.Dir(a.program)}
	if p != nil {
		conf["prevResult"] = map[string]any{
			"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": p.Status.PodIP + "/32", "interface": 0}},
			"interfaces": []any{map[string]any{"name": "eth0", "sandbox": sandbox}},
		}
		environment = append(
			environment, "CNI_CONTAINERID="+string(p.UID), "CNI_IFNAME=eth0", "CNI_NETNS="+sandbox,
			fmt.Sprintf("CNI_ARGS=K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
		)
	}
	text, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.program)
	cmd.Env, cmd.Stdin = environment, bytes.NewReader(text)
	if out, err := cmd.Output(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// sandbox stands for the namespace of a Pod: the plugin does not enter it.
const sandbox = "/proc/self/ns/net"
