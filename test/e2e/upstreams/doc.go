// Package upstreams asks other DNS servers through Portolan's forwarder: Unbound,
// Knot DNS and NSD, out of their Debian packages. Its tests are all there is.
package upstreams
