// Package admission holds no code. Its tests run "portolan webhook" as it is shipped,
// registered at a control plane of its own.
package admission
