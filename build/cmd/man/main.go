// Command man writes the manual pages of portolan into a directory:
//
//	go run ./build/cmd/man DIRECTORY
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"portolan.dev/portolan/build/man"
	"portolan.dev/portolan/internal/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: go run ./build/cmd/man DIRECTORY")
	}
	const dirMode, fileMode = 0o755, 0o644
	if err := os.MkdirAll(args[0], dirMode); err != nil {
		return err
	}
	for name, text := range (man.Book{Version: "(devel)", Time: time.Now()}).Pages(cli.Command()) {
		if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), fileMode); err != nil {
			return err
		}
	}
	return nil
}
