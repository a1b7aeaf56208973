//go:build linux

package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"path/filepath"
	"time"
)

// Plugin is a CNI plugin that is chained behind the network that sandboxes get: ADD is called before the
// containers of a Pod start, and DEL when the Pod ends.
type Plugin struct {
	Program string // file
	// Configuration is the part of the network configuration that is the plugin's own.
	Configuration map[string]any
}

// The network configuration.
const (
	cniVersion  = "1.1.0"
	networkName = "pods"
)

// pluginTime is the longest time of a call.
const pluginTime = time.Minute

// call calls the plugin with a command for a sandbox that has a network (CNI specification 1.1.0, sections 2
// and 4). The error has what the plugin printed.
func (p *Plugin) call(ctx context.Context, command string, b *sandbox) error {
	if p == nil {
		return nil
	}
	conf := map[string]any{
		"cniVersion": cniVersion, "name": networkName, "type": filepath.Base(p.Program), "prevResult": b.network.result(),
	}
	maps.Copy(conf, p.Configuration)
	text, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Program)
	pod := b.config.GetMetadata()
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + b.id, "CNI_NETNS=" + b.network.Path(), "CNI_IFNAME=eth0",
		"CNI_PATH=" + filepath.Dir(p.Program), fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;"+
			"K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s", pod.GetNamespace(), pod.GetName(), b.id, pod.GetUid()),
	}
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s of the CNI plugin: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return nil
}

// result is the network as the result of the plugin that made it (CNI specification 1.1.0, section 5).
func (n *network) result() map[string]any {
	var ips []any
	for _, addr := range n.addresses {
		ips = append(ips, map[string]any{"address": netip.PrefixFrom(addr, addr.BitLen()).String(), "interface": 0})
	}
	return map[string]any{
		"cniVersion": cniVersion, "ips": ips, "interfaces": []any{map[string]any{"name": "eth0", "sandbox": n.Path()}},
	}
}
