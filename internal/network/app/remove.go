package app

import (
	"context"
	"errors"
	"os"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/conflist"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/settings"
	"portolan.dev/portolan/internal/support/filelock"
)

// errRunning is the error of Remove beside an agent: Pods would lose their network, and new ones get it again.
var errRunning = errors.New("another process makes the network of this node: stop portolan node first")

// Remove removes what a Network with these settings left on the node, and returns what that was: its configuration for
// the container runtime first, so that no Pod starts any more, then everything in the kernel, and the records of Pods.
// Beside an agent that makes the network of the node it does nothing, and returns an error.
func Remove(s settings.Network) (removed []string, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	node, err := filelock.AcquireNetwork(ctx, cancel)
	if err != nil {
		return nil, lockError(err)
	}
	if node == nil {
		return nil, errRunning
	}
	defer node.Close()
	steps := []func() ([]string, error){
		func() ([]string, error) {
			return listOf(conflist.RemoveOwn(conflist.Config{ConfDir: s.CNI.ConfDir, Own: settings.ConfName}))
		},
		func() ([]string, error) { return nft.Cleanup(s.Table) },
		route.Remove,
		removeLinks,
		func() ([]string, error) { return nil, os.RemoveAll(attach.LinkRecords(s.CNI.Socket)) },
	}
	for _, step := range steps {
		more, err := step()
		removed = append(removed, more...)
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// listOf returns what was removed as a list, which is empty for "".
func listOf(removed string, err error) ([]string, error) {
	if removed == "" {
		return nil, err
	}
	return []string{removed}, err
}

// removeLinks removes the links of all Pods.
func removeLinks() (removed []string, err error) {
	devices, err := link.List()
	errs := []error{err}
	for _, device := range devices {
		if err := link.Delete(device); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, "device "+device)
	}
	return removed, errors.Join(append(errs, link.Prune())...)
}
