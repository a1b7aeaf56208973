package app

import (
	"errors"
	"sync"

	"portolan.dev/portolan/internal/cni/conflist"
)

// installation is whether the plugin is in the network of the node.
type installation struct {
	mu    sync.Mutex // guards the fields below
	known bool       // not before this process has tried to install it
	err   error      // why it cannot be installed
}

// observe records the result of an attempt.
func (i *installation) observe(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.err = true, err
}

// state returns whether the plugin is installed; known is false if that is not known yet.
func (i *installation) state() (installed, known bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err == nil, i.known
}

// ready describes what is missing. On a node without a network no Pod starts, so that none starts without
// its policies.
func (i *installation) ready() (missing, remarks []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.err == nil:
		return nil, nil
	case errors.Is(i.err, conflist.ErrNoNetwork):
		return nil, []string{"the CNI plugin waits for the node's network: " + i.err.Error()}
	}
	return []string{"the CNI plugin is not installed: " + i.err.Error()}, nil
}
