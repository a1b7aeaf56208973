// Package replacefile replaces files by a rename, so that a reader never sees a part of one.
package replacefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// infix separates the path of a file and random digits in the name of a temporary file.
const infix = ".new-"

// leftoverAge is the time since the last write after which a temporary file belongs to a
// process that was killed.
const leftoverAge = time.Minute

// Write replaces the file at path by one with the contents that write writes, of mode 0600
// unless write changes it. A file that must survive a crash of the machine is synced by
// write. If Write fails, the old file is unchanged and no temporary file is left. Several
// processes may write the file at once: the last rename wins. Write also removes temporary
// files of processes that were killed.
func Write(path string, write func(*os.File) error) error {
	dir, name := filepath.Split(path)
	removeLeftovers(
		filepath.Clean(dir),
		leftoverAge,
		func(file string) bool { return strings.HasPrefix(file, name+infix) },
	)
	return WriteMember(path, write)
}

// WriteMember is Write for a directory with many files. It does not look for the temporary files of
// processes that were killed, which takes the longer the more files there are: RemoveLeftovers does.
func WriteMember(path string, write func(*os.File) error) error {
	dir, name := filepath.Split(path)
	temporary, err := os.CreateTemp(filepath.Clean(dir), name+infix+"*") // mode 0600
	if err != nil {
		return err
	}
	err = errors.Join(write(temporary), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(temporary.Name())
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; the file system needs room for two versions of the file", err)
	}
	return err
}

// RemoveLeftovers removes the temporary files of processes that were killed while they wrote a file in dir
// whose name ends in suffix. No other process may write such a file now.
func RemoveLeftovers(dir, suffix string) {
	removeLeftovers(dir, 0, func(file string) bool { return strings.Contains(file, suffix+infix) })
}

// removeLeftovers removes old temporary files in dir. Those that it fails to remove are removed by a later
// call.
func removeLeftovers(dir string, age time.Duration, temporary func(name string) bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // creating the new file fails and reports it
	}
	for _, e := range entries {
		if !temporary(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= age {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
