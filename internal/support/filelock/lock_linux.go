package filelock

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file, unless another process has it locked, and reports whether it did.
func tryLock(f *os.File) (locked bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
