package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/config"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/connection"
	policynft "portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	proxyapp "portolan.dev/portolan/internal/proxy/app"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/support/hostaddrs"
)

// errCapability is the cure for errors of the kernel that wrap fs.ErrPermission.
var errCapability = errors.New("it needs the capability NET_ADMIN: run it as root, in the node's network")

// kernelNode returns the name of this node, by the configuration or by this machine. With manifests, this
// machine's own name is not that of a node: then it is empty, for any.
func kernelNode(c *config.Config, compiled *config.Compiled) (string, error) {
	if compiled.Proxy.NodeName != "" || c.Manifests != "" {
		return compiled.Proxy.NodeName, nil
	}
	return proxyapp.NodeName("")
}

// kernelReader returns the reader of this node's kernel, with the table and the name of the node
// that the configuration has.
func kernelReader(c *config.Config) (*connection.KernelReader, error) {
	compiled, err := c.Compile()
	if err != nil {
		return nil, err
	}
	node, err := kernelNode(c, compiled)
	if err != nil {
		return nil, err
	}
	table := compiled.Proxy.Table.Name
	read := func(at frontend.Address, want *frontend.Frontend) (connection.Kernel, error) {
		h, err := nft.Lookup(table, at, want)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("there is no nftables table %s %s: portolan proxy has not run here", nft.FamilyOf(at.Addr), table)
		case errors.Is(err, fs.ErrPermission):
			err = errCapability
		}
		return connection.Kernel{
			Element: h.Element, Endpoints: len(h.Endpoints), Local: len(h.Local), Differences: h.Differences,
		}, err
	}
	return &connection.KernelReader{Node: node, Read: read}, nil
}

// kernelJudge returns what judges connections by the policies in this node's kernel. Unless it was asked for,
// it is nil with manifests, and where the kernel has no policies or they cannot be read: on all machines but
// nodes with an agent.
func kernelJudge(c *config.Config, asked bool) (*connection.KernelJudge, error) {
	compiled, err := c.Compile()
	if err != nil {
		return nil, err
	}
	table := compiled.Policy.Table
	if !asked {
		there, err := policynft.Exists(table)
		if readable := err == nil && there; !readable || c.Manifests != "" {
			return nil, nil
		}
	}
	node, err := proxyapp.NodeName(compiled.Proxy.NodeName)
	if err != nil {
		return nil, err
	}
	judge := func(d ruleset.Direction, p ruleset.Packet) (v ruleset.Verdict, err error) {
		own, err := hostaddrs.All()
		if err != nil {
			return v, err
		}
		p.ToNode = slices.Contains(own, p.Destination)
		v, err = policynft.Judge(table, d, p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("there is no nftables table inet %s: no agent with policies has run here", table)
		case errors.Is(err, fs.ErrPermission):
			err = errCapability
		}
		return v, err
	}
	isOwn := func(addr netip.Addr) bool {
		own, err := hostaddrs.All()
		return err == nil && slices.Contains(own, addr)
	}
	return &connection.KernelJudge{Node: node, Judge: judge, IsOwn: isOwn}, nil
}

// liveKernel has the tables of this machine's kernel compared that are there and can be read.
func liveKernel(c *config.Config, q *podapp.Way) error {
	compiled, err := c.Compile()
	if err != nil {
		return err
	}
	_, err = nft.Lookup(compiled.Proxy.Table.Name, frontend.Address{Addr: netip.IPv4Unspecified()}, nil)
	if err == nil {
		if q.Kernel, err = kernelReader(c); err != nil {
			return err
		}
	}
	if there, err := policynft.Exists(compiled.Policy.Table); err == nil && there {
		if q.Judge, err = kernelJudge(c, true); err != nil {
			return err
		}
	}
	return nil
}
