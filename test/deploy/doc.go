// Package deploy tests deploy/: what the kustomizations and the chart render, the
// systemd unit, the image, and that a container may bind port 53.
package deploy
