package conflist

import (
	"io/fs"
	"os"
)

// chown gives a file the owner of another. Windows has no networks of CNI plugins.
func chown(*os.File, fs.FileInfo) error { return nil }
