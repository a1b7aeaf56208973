package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// probePaths are the paths of admin.probes.
var probePaths = map[string]string{"live": "/health", "ready": "/ready"}

// probeTime is the timeout of a probe. The kubelet has a separate timeout.
const probeTime = 5 * time.Second

func newProbe() *cobra.Command {
	return &cobra.Command{
		Use:   "probe live|ready ADDRESS",
		Short: "Check whether a server or an agent is alive or ready",
		Long: `Check whether a server, or the agent on a node, is alive or ready, and print its
answer. ADDRESS is one of its admin.probes: an address and port, or unix:PATH.

It is for the probes of the agent's Pods: during an upgrade two agents share the
addresses and ports of a node, but each has a socket of its own. The exit status
is 1 if the answer is negative or missing.`,
		Example: `  portolan probe ready 127.0.0.1:8181
  portolan probe live unix:/run/portolan/probes`,
		Args:              arguments(2, 2),
		ValidArgsFunction: completeProbe,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, known := probePaths[args[0]]
			if !known {
				return fmt.Errorf("%q is not live or ready", args[0])
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), probeTime)
			defer cancel()
			words, good, err := probe(ctx, args[1], path)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprint(cmd.OutOrStdout(), words); err != nil {
				return err
			}
			if !good {
				return errNegative
			}
			return nil
		},
	}
}

func completeProbe(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []cobra.Completion{"live", "ready"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
