// Package attack tries to bring a server down or to starve its clients, as an attacker in
// the cluster could. The server runs in a network namespace of the test, in a memory
// control group with the limit of the shipped manifests. Each attack has bounds for
// memory, goroutines and open files of the server, and meanwhile other clients' lookups of
// cluster names and of names outside must all succeed.
//
// The package needs Linux and root. Attacks take a few seconds each; -time makes them
// longer, and -v prints what the server used.
package attack
