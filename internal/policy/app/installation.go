package app

import (
	"errors"

	"portolan.dev/portolan/internal/cni/conflist"
)

// pluginReady describes what is missing of the plugin, given why it cannot be installed. On a node without a network no
// Pod starts, so that none starts without its policies.
func pluginReady(err error) (missing, remarks []string) {
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, conflist.ErrNoNetwork):
		return nil, []string{"the CNI plugin waits for the node's network: " + err.Error()}
	}
	return []string{"the CNI plugin is not installed: " + err.Error()}, nil
}
