package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/connection"
	proxyapp "portolan.dev/portolan/internal/proxy/app"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
)

// errCapability is the cure for errors of the kernel that wrap fs.ErrPermission.
var errCapability = errors.New("it needs the capability NET_ADMIN: run it as root, in the node's network")

// kernelReader returns the reader of this node's kernel, with the table and the name of the node
// that the configuration has. With manifests, this machine's own name is not that of a node.
func kernelReader(c *config.Config) (*connection.KernelReader, error) {
	compiled, err := c.Compile()
	if err != nil {
		return nil, err
	}
	node := compiled.Proxy.NodeName
	if node == "" && c.Manifests == "" {
		if node, err = proxyapp.NodeName(""); err != nil {
			return nil, err
		}
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
