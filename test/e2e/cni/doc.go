// Package cni holds no code. Its tests call the CNI plugin as container runtimes do, with libcni, in a chain
// behind plugins of the CNI project.
package cni
