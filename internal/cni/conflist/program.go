package conflist

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"portolan.dev/portolan/internal/cni/plugin"
	"portolan.dev/portolan/internal/support/replacefile"
)

// InstallProgram copies the program into the directory of plugins, unless it is there, and returns its path.
// A plugin that runs meanwhile, of whichever version, is not disturbed.
func InstallProgram(cfg Config) (path string, changed bool, err error) {
	cfg = cfg.withDefaults()
	path = filepath.Join(cfg.BinDir, plugin.Type)
	if cfg.Program == "" {
		if cfg.Program, err = os.Executable(); err != nil {
			return path, false, err
		}
	}
	if same, err := sameContents(cfg.Program, path); err != nil || same {
		return path, false, err
	}
	if err := os.MkdirAll(cfg.BinDir, 0o755); err != nil {
		return path, false, err
	}
	source, err := os.Open(cfg.Program)
	if err != nil {
		return path, false, err
	}
	defer source.Close()
	return path, true, replacefile.Write(path, func(f *os.File) error {
		if err := f.Chmod(0o755); err != nil {
			return err
		}
		if _, err := io.Copy(f, source); err != nil {
			return err
		}
		return f.Sync()
	})
}

// sameContents reports whether an installed program is that in source, and can be executed.
func sameContents(source, installed string) (bool, error) {
	there, err := os.Stat(installed)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !there.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a file", installed)
	}
	info, err := os.Stat(source)
	if err != nil {
		return false, err
	}
	if os.SameFile(info, there) {
		return true, nil
	}
	if info.Size() != there.Size() || there.Mode().Perm() != 0o755 {
		return false, nil
	}
	return equalFiles(source, installed)
}

func equalFiles(a, b string) (bool, error) {
	x, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer y.Close()
	const size = 1 << 16
	in, other := bufio.NewReaderSize(x, size), make([]byte, size)
	for {
		n, err := io.ReadFull(y, other)
		if errors.Is(err, io.EOF) {
			_, err = in.Peek(1)
			return errors.Is(err, io.EOF), nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		part, err := in.Peek(n)
		if err != nil || !bytes.Equal(part, other[:n]) {
			return false, nil
		}
		if _, err := in.Discard(n); err != nil {
			return false, err
		}
	}
}

// RemoveProgram removes the program from the directory of plugins, and returns its path, or "" if it is not
// there. A runtime that keeps the configuration with which it started a Pod (CRI-O) cannot end such Pods
// without it.
func RemoveProgram(cfg Config) (path string, err error) {
	path = filepath.Join(cfg.withDefaults().BinDir, plugin.Type)
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return "", err
	}
	return path, nil
}
