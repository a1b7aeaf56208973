// Package interop runs the clients of others through `portolan gateway`: those of gRPC's interoperability tests
// (google.golang.org/grpc/interop), h2spec, which tries what RFC 9113 and RFC 7541 demand of a server, testssl.sh,
// which looks for weaknesses of TLS, and slowhttptest, whose clients are slow. They use loopback addresses, and need
// no rights.
package interop
