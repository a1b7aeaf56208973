// Package statefile saves the state of a program in a file, for its next start.
//
// A file consists of a line with its format and version, the contents, and the SHA-256
// checksum of both. A new file replaces the old one by a rename. A file that is damaged,
// or of another format or version, is renamed and never used.
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
	"strings"

	"portolan.dev/portolan/internal/support/deadline"
	"portolan.dev/portolan/internal/support/replacefile"
)

// ErrForeign is wrapped by the errors for files that are damaged, or of another format
// or version.
var ErrForeign = errors.New("damaged, or of another version")

// Boot identifies the boot of the machine, for state that does not outlast one (boot_id of random(4)). It is empty on
// other systems than Linux.
func Boot() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return strings.TrimSpace(string(boot)), nil
}

// Format is the first line of all files of a format and version.
type Format string

// Write replaces the file at path by one with the contents that write writes, see
// replacefile.Write.
func (f Format) Write(path string, write func(io.Writer) error) error {
	return replacefile.Write(path, func(file *os.File) error {
		if err := f.write(file, write); err != nil {
			return err
		}
		return file.Sync()
	})
}

// WriteVolatile is Write for state that is of no use after a crash of the machine. It does
// not wait for the disk.
func (f Format) WriteVolatile(path string, write func(io.Writer) error) error {
	return replacefile.Write(path, func(file *os.File) error { return f.write(file, write) })
}

// WriteMember is WriteVolatile for a directory with many files, see replacefile.WriteMember.
func (f Format) WriteMember(path string, write func(io.Writer) error) error {
	return replacefile.WriteMember(path, func(file *os.File) error { return f.write(file, write) })
}

func (f Format) write(w io.Writer, write func(io.Writer) error) error {
	sum := sha256.New()
	buffered := bufio.NewWriter(io.MultiWriter(w, sum))
	if _, err := buffered.WriteString(string(f)); err != nil {
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

// maxSize is the largest state file, in octets.
const maxSize = 1 << 30

// Read passes the contents of the file at path to parse. If the file is damaged, of
// another format or version, or rejected by parse, Read renames it to path.bad and
// returns an error that wraps ErrForeign. If it does not exist, the error wraps
// fs.ErrNotExist; if it blocks its reader, deadline.ErrExceeded.
func (f Format) Read(path string, parse func(contents []byte) error) error {
	data, err := deadline.ReadFile(path, deadline.File, maxSize)
	if err != nil {
		return err
	}
	end := max(0, len(data)-sha256.Size)
	err = ErrForeign
	body, ok := bytes.CutPrefix(data[:end], []byte(f))
	if ok && sha256.Sum256(data[:end]) == [sha256.Size]byte(data[end:]) {
		if err = parse(body); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w", ErrForeign, err)
	}
	aside := path + ".bad"
	if moved := os.Rename(path, aside); moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w, and cannot be set aside: %w", path, err, moved)
	}
	return fmt.Errorf("%s: %w; it is set aside as %s", path, err, aside)
}
