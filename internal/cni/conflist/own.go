package conflist

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"portolan.dev/portolan/internal/cni/plugin"
	"portolan.dev/portolan/internal/support/deadline"
	"portolan.dev/portolan/internal/support/replacefile"
)

// own returns the text of a list in which the plugin is alone. The capabilities are those that the plugin has the
// runtime pass (CNI specification, "Deriving runtimeConfig").
func (c Config) own() []byte {
	return fmt.Appendf(nil, `{
  "cniVersion": %q,
  "name": "portolan",
  "plugins": [
    {"type": %q, "socket": %q, "capabilities": {"portMappings": true, "bandwidth": true}}
  ]
}
`, slices.Max(plugin.Versions()), plugin.Type, c.Socket)
}

// InstallOwn writes the list of the network whose only plugin is this one, unless it is there.
func InstallOwn(cfg Config) (Network, error) {
	cfg = cfg.withDefaults()
	file := filepath.Join(cfg.ConfDir, cfg.Own)
	n := Network{File: file}
	text, err := deadline.ReadFile(file, deadline.File, deadline.Small)
	switch {
	case err == nil && bytes.Equal(text, cfg.own()):
		return n, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return n, err
	}
	if err := os.MkdirAll(cfg.ConfDir, 0o755); err != nil {
		return n, err
	}
	n.Changed = true
	return n, replacefile.Write(file, func(f *os.File) error {
		if err := f.Chmod(0o644); err != nil {
			return err
		}
		if _, err := f.Write(cfg.own()); err != nil {
			return err
		}
		return f.Sync()
	})
}

// RemoveOwn removes the list that InstallOwn wrote, and returns its path; "" if it is not there.
func RemoveOwn(cfg Config) (file string, err error) {
	file = filepath.Join(cfg.withDefaults().ConfDir, cfg.Own)
	switch err := os.Remove(file); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return file, nil
}
