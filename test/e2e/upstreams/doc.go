// Package upstreams holds no code. Its tests query other DNS servers through
// Portolan's forwarder: Unbound, Knot DNS and NSD, from their Debian packages.
package upstreams
