// Package podnetwork holds no code. Its tests run the agent that makes the network of a node's Pods, and its CNI plugin
// as container runtimes do: with the CNI project's library and its program cnitool.
package podnetwork
