package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// probePaths are those of admin.probes.
var probePaths = map[string]string{"live": "/health", "ready": "/ready"}

// probeTime bounds a probe; a kubelet gives it less, or more.
const probeTime = 5 * time.Second

func newProbe() *cobra.Command {
	return &cobra.Command{
		Use:   "probe live|ready ADDRESS",
		Short: "Ask whether a server or an agent is ready",
		Long: `Ask a server, or the agent of a node, whether it is alive or ready, and print what
it says. ADDRESS is one of its admin.probes: an address and port, or unix:PATH.

It is for the probes of the agent's Pods: on one node there may be two of them for
a while, with the same address and port, and each has a socket of its own. The
status is 1 when the answer is no, or none comes.`,
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
