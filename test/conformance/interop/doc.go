// Package interop runs the clients of others through `portolan gateway`: those of gRPC's interoperability tests
// (google.golang.org/grpc/interop), and h2spec, which tries what RFC 9113 and RFC 7541 demand of a server. Each runs
// over TLS and without it, on loopback addresses, and needs no rights.
package interop
