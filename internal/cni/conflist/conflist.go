// Package conflist installs the CNI plugin on a node: its program, and its entry in the network configuration
// that the container runtime loads, which is that of another network.
//
//	/etc/cni/net.d/10-net.conflist   {"plugins": [{"type": "ptp"}]}
//	                            ──►  {"plugins": [{"type": "ptp"},{"type":"portolan","socket":"…"}]}
//	/etc/cni/net.d/10-net.conf  ──►  10-net.conf.conflist, and 10-net.conf.portolan-saved
//
// containerd and CRI-O load the first file by name with the extension .conf, .conflist or .json. Everything in
// it but the entry stays as it is, to the octet. At every moment the directory has a configuration that the
// runtime can load, with the entry or without it.
package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/plugin"
	"portolan.dev/portolan/internal/support/deadline"
	"portolan.dev/portolan/internal/support/replacefile"
)

// The default directories of container runtimes.
const (
	DefaultBinDir  = "/opt/cni/bin"
	DefaultConfDir = "/etc/cni/net.d"
)

// savedSuffix is that of a configuration that a list replaces. No runtime loads a file with it.
const savedSuffix = ".portolan-saved"

// Config says what is installed where.
type Config struct {
	// BinDir and ConfDir are the directories of the container runtime; empty is its default.
	BinDir, ConfDir string
	// Socket is the path of the agent's socket, on the host; empty is attach.DefaultSocket.
	Socket string
	// Own is the name of the list of a network whose only plugin is this one, in ConfDir; empty if the plugin is in the
	// network of another.
	Own string
	// Program is the file to install; empty is that of this process.
	Program string
	// Observe is called by Follow with why the plugin cannot be installed, and with nil when it is. It may be nil.
	Observe func(error)
}

func (c Config) withDefaults() Config {
	set := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	set(&c.BinDir, DefaultBinDir)
	set(&c.ConfDir, DefaultConfDir)
	set(&c.Socket, attach.DefaultSocket)
	return c
}

// entry returns the plugin's entry in a list.
func (c Config) entry() ([]byte, error) {
	return json.Marshal(struct {
		Type   string `json:"type"`
		Socket string `json:"socket"`
	}{plugin.Type, c.Socket})
}

// ErrNoNetwork is the error of Join if the directory has no network configuration (yet).
var ErrNoNetwork = errors.New("no network configuration")

// errRewritten is the error if another program wrote a file meanwhile.
var errRewritten = errors.New("another program writes it")

// Network is a network that the plugin is in.
type Network struct {
	File    string   // its configuration
	Plugins []string // the types of the other plugins, in order
	Changed bool     // the file was changed
}

// Join puts the plugin into the configuration that the runtime loads, unless it is there. It returns
// ErrNoNetwork if there is none, and an error that names the file if it is one that the plugin cannot be in.
// That file stays as it is.
func Join(cfg Config) (Network, error) {
	cfg = cfg.withDefaults()
	files, err := configurations(cfg.ConfDir)
	if err != nil {
		return Network{}, err
	}
	if len(files) == 0 {
		return Network{}, fmt.Errorf("%s: %w", cfg.ConfDir, ErrNoNetwork)
	}
	n, err := join(files[0], cfg)
	if err != nil {
		return Network{}, fmt.Errorf("%s: %w", files[0], err)
	}
	return n, nil
}

// configurations returns the files of a directory that runtimes read, in their order.
func configurations(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir) // in order
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".conf", ".conflist", ".json"}, ext) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

func join(file string, cfg Config) (Network, error) {
	d, err := read(file)
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return Network{}, err
	}
	entry, err := cfg.entry()
	if err != nil {
		return Network{}, err
	}
	n := Network{File: file, Plugins: d.kinds()}
	isList := filepath.Ext(file) == ".conflist"
	switch {
	case isList != d.isList && isList:
		return n, errors.New("has no plugins: a single configuration has the extension .conf")
	case isList != d.isList:
		return n, errors.New("has plugins: a list has the extension .conflist")
	case !isList:
		n.File, n.Changed = file+".conflist", true
		return n, convert(file, d, entry)
	}
	text, err := d.with(entry)
	if err != nil || bytes.Equal(text, d.text) {
		return n, err
	}
	n.Changed = true
	return n, replace(file, d.text, text)
}

// convert replaces a configuration by a list. The runtime prefers the one before until it has another name.
func convert(file string, d *document, entry []byte) error {
	text, err := d.list(entry)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if err := write(file+".conflist", text, info); err != nil {
		return err
	}
	return os.Rename(file, file+savedSuffix)
}

func read(file string) (*document, error) {
	text, err := deadline.ReadFile(file, deadline.File, deadline.Small)
	if err != nil {
		return nil, withoutPath(err)
	}
	return parse(text)
}

// withoutPath returns an error without the path that callers add.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Op, path.Err)
	}
	return err
}

// replace replaces the text of a file, if it is still the one before. A symbolic link stays one.
func replace(file string, before, text []byte) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	now, err := deadline.ReadFile(file, deadline.File, deadline.Small)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, before) {
		return errRewritten
	}
	return write(file, text, info)
}

// write writes a file with the mode and owner of another.
func write(file string, text []byte, like fs.FileInfo) error {
	return replacefile.Write(file, func(f *os.File) error {
		if err := f.Chmod(like.Mode().Perm()); err != nil {
			return err
		}
		if err := chown(f, like); err != nil {
			return err
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
		return f.Sync()
	})
}

// Leave removes the plugin from all configurations of other networks, which are what they were before Join unless
// others changed them meanwhile. It returns the files that it changed or restored, and an error for each that it
// cannot read.
func Leave(cfg Config) (changed []string, err error) {
	cfg = cfg.withDefaults()
	files, err := configurations(cfg.ConfDir)
	errs := []error{err}
	for _, file := range files {
		if filepath.Ext(file) != ".conflist" || filepath.Base(file) == cfg.Own {
			continue
		}
		restored, err := leave(file)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		case restored != "":
			changed = append(changed, restored)
		}
	}
	return changed, errors.Join(errs...)
}

// leave removes the plugin from a list. It returns the configuration that is there instead, none if the list
// does not have the plugin.
func leave(file string) (restored string, err error) {
	d, err := read(file)
	if err != nil || !d.has() {
		return "", err
	}
	before := strings.TrimSuffix(file, ".conflist")
	if d.replaces(before + savedSuffix) {
		if _, err := os.Lstat(before); errors.Is(err, fs.ErrNotExist) {
			if err := os.Rename(before+savedSuffix, before); err != nil {
				return "", err
			}
		}
		// Otherwise its installer has written it again.
		return before, errors.Join(os.Remove(file), removeSaved(before))
	}
	text := d.without()
	rest, err := parse(text)
	if err != nil {
		return "", err
	}
	if len(rest.plugins) == 0 || rest.has() {
		return "", errors.New("has no other plugin")
	}
	return file, replace(file, d.text, text)
}

func removeSaved(before string) error {
	if err := os.Remove(before + savedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replaces reports whether the list is of the configuration in a file and the plugin, and nothing else.
func (d *document) replaces(saved string) bool {
	text, err := deadline.ReadFile(saved, deadline.File, deadline.Small)
	return err == nil && len(d.plugins) == 2 &&
		bytes.Equal(d.text[d.plugins[0].begin:d.plugins[0].end], bytes.TrimSpace(text))
}
