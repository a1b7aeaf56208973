// Package statefile keeps what a program knows in a file, for its next start.
//
// A file is a line that says what it is and in which version, its contents, and
// the SHA-256 sum of all before it. It is replaced whole, by renaming a complete
// one over it. One that is damaged, or of another version or program, is set
// aside and never used.
package statefile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrForeign is wrapped by the errors of files that are not of this kind and
// version, or damaged.
var ErrForeign = errors.New("damaged, or of another version")

// Kind is what begins every file of a kind and version, a line.
type Format string

// infix stands between the path of a file and the digits behind it, in the name of
// one that is being written.
const infix = ".new-"

// leftoverAge is how long nothing was written to a file that nobody writes any more.
const leftoverAge = time.Minute

// Write replaces the file at path by one with the contents that write gives.
// When it fails, the file that was there is as it was, and nothing else is left
// behind. Several programs may write it at once: the last one's stands. What one
// that was killed left behind is removed.
func (k Format) Write(path string, write func(io.Writer) error) error {
	dir, name := filepath.Split(path)
	removeLeftovers(filepath.Clean(dir), name)
	f, err := os.CreateTemp(filepath.Clean(dir), name+infix+"*") // for its owner alone
	if err != nil {
		return err
	}
	err = k.write(f, write)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(f.Name())
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; make room there: the new file is written beside the last one", err)
	}
	return err
}

// removeLeftovers removes files that were being written, of a name in dir. What it
// can't remove is removed another time.
func removeLeftovers(dir, name string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // then nothing is written there, either
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), name+infix) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func (k Format) write(w io.Writer, write func(io.Writer) error) error {
	sum := sha256.New()
	buffered := bufio.NewWriter(io.MultiWriter(w, sum))
	if _, err := buffered.WriteString(string(k)); err != nil {
		return err
	}
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// Read gives the contents of the file at path to parse. A file that is there and
// can't be used, or that parse refuses, is renamed to path.bad, and the error
// wraps ErrForeign; one that is not there is fs.ErrNotExist.
func (k Format) Read(path string, parse func(contents []byte) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	end := max(0, len(data)-sha256.Size)
	err = ErrForeign
	if body, ok := bytes.CutPrefix(data[:end], []byte(k)); ok && sha256.Sum256(data[:end]) == [sha256.Size]byte(data[end:]) {
		if err = parse(body); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w", ErrForeign, err)
	}
	aside := path + ".bad"
	if moved := os.Rename(path, aside); moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w, and can't be set aside: %w", path, err, moved)
	}
	return fmt.Errorf("%s: %w; it is set aside as %s", path, err, aside)
}
