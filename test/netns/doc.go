// Package netns holds what is foretold against what happens: real resolvers,
// those of glibc, musl and Go, look up names in a network namespace whose /etc is
// its own, where Portolan is the server, and the queries that Portolan saw are
// those that portolan explain, or the package stub that it goes by, foretold, in
// order; the program is told what was foretold, too.
//
// Queries that a resolver has under way together (A beside AAAA, or all servers
// at once) may come in any order, and only those.
//
// TestNode has Pods on nodes (package nodes) look names up by the agent of their
// node.
//
// The tests need root, Linux, gcc and musl-gcc (Debian: musl-tools); without, what
// needs them is skipped, but not where the variable CI is set. No packet leaves
// the namespace, and its processes end with the test.
package netns
