// Package deploy tests what deploy/ holds: what the kustomization and the chart
// render, the systemd unit, and that a container may bind port 53.
package deploy
