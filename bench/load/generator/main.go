// Command generator runs package load in a separate process. It reads a configuration
// from stdin and writes the result to stdout, both in JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"portolan.dev/portolan/bench/load"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	// Only TLS produces a significant amount of garbage.
	const mostMemory = 2 << 30
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(mostMemory)
	runtime.LockOSThread()
	var c load.Config
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return err
	}
	r, err := load.Run(&c)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
