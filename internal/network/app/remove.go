package app

import (
	"errors"
	"os"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/conflist"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/settings"
)

// Remove removes what a Network with these settings left on the node, and returns what that was: its configuration for
// the container runtime first, so that no Pod starts any more, then everything in the kernel, and the records of Pods.
func Remove(s settings.Network) (removed []string, err error) {
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
