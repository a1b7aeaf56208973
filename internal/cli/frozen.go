package cli

import (
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
)

// agentProcess is true if the process is the agent of a node.
type agentProcess bool

// frozen returns cfg, with the start's values for keys that take effect only at the
// next start, and the paths of those keys that differ.
func frozen(start, cfg config.Config, agent agentProcess) (config.Config, []string) {
	return cfg.Freeze(&start, func(c key.Condition) bool {
		switch c {
		case key.OnNode:
			return bool(agent)
		case key.WithAPI:
			return start.Manifests == ""
		case key.WithSimulation:
			return start.Simulate.Enabled
		}
		return false
	})
}
