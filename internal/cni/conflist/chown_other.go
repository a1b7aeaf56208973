//go:build !windows

package conflist

import (
	"io/fs"
	"os"
	"syscall"
)

// chown gives a file the owner of another.
func chown(f *os.File, like fs.FileInfo) error {
	owner, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(owner.Uid), int(owner.Gid))
}
