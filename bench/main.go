// Command bench measures Portolan and its peers under the same load in one run, and
// prints tables in Markdown. See docs/bench.md.
package main

import (
	"os"

	"portolan.dev/portolan/bench/burst"
	"portolan.dev/portolan/bench/explain"
	"portolan.dev/portolan/bench/forwarding"
	"portolan.dev/portolan/bench/gateway"
	"portolan.dev/portolan/bench/live"
	"portolan.dev/portolan/bench/network"
	"portolan.dev/portolan/bench/node"
	"portolan.dev/portolan/bench/policy"
	"portolan.dev/portolan/bench/proxy"
	"portolan.dev/portolan/bench/query"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/secondaries"
)

func main() {
	os.Exit(rig.Main([]rig.Suite{
		query.Suite(),
		burst.Suite(),
		explain.Suite(),
		forwarding.Suite(),
		gateway.Suite(),
		live.Suite(),
		network.Suite(),
		node.Suite(),
		policy.Suite(),
		proxy.Suite(),
		secondaries.Suite(),
	}, os.Args[1:]))
}
