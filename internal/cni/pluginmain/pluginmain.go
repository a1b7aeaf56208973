// Package pluginmain makes a program a CNI plugin when a container runtime calls it, before most of the
// program's packages are initialized.
//
// The runtime starts the plugin for each Pod, and the packages of the rest of the program take several times
// as long to initialize as the plugin takes to run. The Go specification ("Program initialization") says
// which come first: packages are initialized one at a time, the first by import path of those whose imports
// are initialized. So this one comes after its own imports and before all that import, directly or not, a
// package whose path sorts after it, such as those of sigs.k8s.io and with them the API types and client-go.
package pluginmain

import (
	"os"

	"portolan.dev/portolan/internal/cni/plugin"
)

func init() { // see the comment of the package
	if plugin.Called() {
		os.Exit(plugin.Run(os.Stdin, os.Stdout, os.Stderr))
	}
}
