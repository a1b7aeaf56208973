// Command caller runs package calls in a separate process. It reads a configuration from stdin and writes the result
// to stdout, both in JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"portolan.dev/portolan/bench/gateway/calls"
)

func main() {
	var c calls.Config
	err := json.NewDecoder(os.Stdin).Decode(&c)
	var r *calls.Result
	if err == nil {
		r, err = calls.Run(&c)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "caller:", err)
		os.Exit(1)
	}
}
