// Package admission holds no code; its tests run "portolan webhook" as it is
// shipped, beside a control plane of its own that asks it about what is applied.
package admission
