// Package netns holds what is foretold against what happens: real resolvers,
// those of glibc, musl and Go, look up names in a network namespace whose /etc is
// its own, where Portolan is the server, and the queries that Portolan saw are
// those that package stub foretold, in order.
//
// Queries that a resolver has under way together (A beside AAAA, or all servers
// at once) may come in any order, and only those.
//
// The tests need root, Linux, gcc and musl-gcc (Debian: musl-tools); without one
// of them they are skipped, but not where the variable CI is set. No packet leaves
// the namespace, and its processes end with the test.
package netns
