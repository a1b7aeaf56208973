// Package netns compares predictions with real resolvers. The resolvers of glibc,
// musl and Go look names up in a network namespace with its own /etc, where Portolan
// is the server. The queries that Portolan receives, and the outcome that the program
// sees, must be those that `portolan explain`, or its package stubresolver, predicts,
// in the same order. Queries that a resolver sends at once (A and AAAA, or to all
// servers) may arrive in any order.
//
// TestNode runs the node agent: Pods on nodes (package nodes) look names up through
// the agent of their node.
//
// The tests need root, Linux, gcc and musl-gcc (Debian: musl-tools). Without them the
// tests are skipped, unless the variable CI is set. No packet leaves the namespace,
// and its processes end with the test.
package netns
