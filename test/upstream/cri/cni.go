//go:build linux

package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"portolan.dev/portolan/test/namespace"
)

// CNI is where the network of sandboxes comes from: the first network configuration of a directory by name, as
// containerd and CRI-O load it, with the CNI project's library.
type CNI struct {
	ConfDir, BinDir string
	CacheDir        string // of the library
	// Namespaces is where the network namespaces of sandboxes are mounted, for agents in containers.
	Namespaces string
}

// load returns the network, or an error while there is none.
func (c *CNI) load() (*libcni.CNIConfig, *libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(c.ConfDir, []string{".conflist"}) // sorted
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no network configuration in %s", c.ConfDir)
	}
	if err != nil {
		return nil, nil, err
	}
	list, err := libcni.ConfListFromFile(files[0])
	// The library makes this itself, but not for concurrent calls.
	starter := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}
	return libcni.NewCNIConfigWithCacheDir([]string{c.BinDir}, c.CacheDir, starter), list, err
}

// status returns why no sandbox can have a network now, or nil.
func (c *CNI) status(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	config, list, err := c.load()
	if err != nil {
		return err
	}
	return config.GetStatusNetworkList(ctx, list)
}

// add makes the network of a sandbox in its namespace.
func (c *CNI) add(ctx context.Context, b *sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	config, list, err := c.load()
	if err != nil {
		return err
	}
	added, err := config.AddNetworkList(ctx, list, b.runtimeConf())
	if err != nil {
		return fmt.Errorf("ADD: %w", err)
	}
	result, err := types100.NewResultFromResult(added)
	if err != nil {
		return fmt.Errorf("ADD: %w", err)
	}
	for _, ip := range result.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("ADD: %q is not an address", ip.Address.IP)
		}
		b.network.addresses = append(b.network.addresses, addr.Unmap())
	}
	return nil
}

// delete gives the network of a sandbox back.
func (c *CNI) delete(b *sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), pluginTime)
	defer cancel()
	config, list, err := c.load()
	if err != nil {
		return err
	}
	if err := config.DelNetworkList(ctx, list, b.runtimeConf()); err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	return nil
}

// runtimeConf is what runtimes pass for a Pod of Kubernetes.
func (b *sandbox) runtimeConf() *libcni.RuntimeConf {
	pod := b.config.GetMetadata()
	var ports []any
	for _, p := range b.config.GetPortMappings() {
		ports = append(ports, map[string]any{
			"hostPort": p.GetHostPort(), "containerPort": p.GetContainerPort(), "hostIP": p.GetHostIp(),
			"protocol": strings.ToLower(runtimeapi.Protocol_name[int32(p.GetProtocol())]),
		})
	}
	return &libcni.RuntimeConf{
		ContainerID: b.id, NetNS: b.network.mounted, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", pod.GetNamespace()},
			{"K8S_POD_NAME", pod.GetName()},
			{"K8S_POD_INFRA_CONTAINER_ID", b.id},
			{"K8S_POD_UID", pod.GetUid()},
		},
		CapabilityArgs: map[string]any{"portMappings": ports},
	}
}

// makeNamespace makes the namespace of a sandbox whose network plugins make.
func (s *Server) makeNamespace(b *sandbox) (err error) {
	if b.network.Network, err = namespace.New(); err != nil {
		return err
	}
	file := filepath.Join(s.config.CNI.Namespaces, b.id)
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		return err
	}
	if err := unix.Mount(b.network.Path(), file, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(&fs.PathError{Op: "mount", Path: file, Err: err}, os.Remove(file))
	}
	b.network.mounted = file
	return b.network.Do(b.setSysctls)
}

// unmount undoes the mount of the namespace.
func (n *network) unmount() error {
	if n.mounted == "" {
		return nil
	}
	// The kernel removes it where others still have it.
	return errors.Join(os.NewSyscallError("umount", unix.Unmount(n.mounted, unix.MNT_DETACH)), os.Remove(n.mounted))
}

// connect makes what of a sandbox's network the runtime does not make itself. It may wait.
func (s *Server) connect(ctx context.Context, b *sandbox) error {
	if s.config.CNI != nil {
		return s.config.CNI.add(ctx, b)
	}
	return s.config.Plugin.call(ctx, "ADD", b)
}

// disconnect gives back what connect made.
func (s *Server) disconnect(b *sandbox) error {
	if s.config.CNI != nil {
		return s.config.CNI.delete(b)
	}
	// The link goes with the namespace, later; its routes must go before their addresses are
	// used again.
	err := s.config.Plugin.call(context.Background(), "DEL", b)
	_ = namespace.IP("link delete " + b.network.link) // it may not have been made
	return err
}

// networkReady is the condition of the network.
func (s *Server) networkReady(ctx context.Context) *runtimeapi.RuntimeCondition {
	condition := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
	if s.config.CNI == nil {
		return condition
	}
	if err := s.config.CNI.status(ctx); err != nil {
		condition.Status, condition.Reason, condition.Message = false, "NetworkPluginNotReady", err.Error()
	}
	return condition
}
