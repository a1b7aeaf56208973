package conflist

import "sync"

// Installation is whether Follow has the plugin installed. The zero value is that nothing is known. Its methods are
// safe for concurrent use.
type Installation struct {
	mu    sync.Mutex // guards the fields below
	known bool       // not before it was tried
	err   error      // why it cannot be installed
}

// Observe records the result of an attempt; see Config.Observe.
func (i *Installation) Observe(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.err = true, err
}

// State returns whether the plugin is installed; known is false if that is not known yet.
func (i *Installation) State() (installed, known bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err == nil, i.known
}

// Err returns why the plugin cannot be installed, or nil.
func (i *Installation) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}
