package cli

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/policy/droplog"
)

func newPolicyLog() *cobra.Command {
	var flags policyLogFlags
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Print the packets that policies denied on a node",
		Long: `Print the last packets that policies denied on the node of an agent, or would deny if
they were not in audit mode: both ends with their Pods, and the rule that decided.
Equal packets within a second are one line. The kernel logs up to 10 packets a second
for each rule, and the agent a limited number of lines; its metrics count all packets.

The command talks to the agent's admin address, which must be on loopback; the agents
of the chart and the manifests have it at port 9154.`,
		Example: `  portolan policy log
  portolan policy log --follow --namespace shop
  kubectl exec -n kube-system portolan-node-x7k2q -- /portolan policy log --admin 127.0.0.1:9154`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	flags.admin.add(cmd)
	cmd.Flags().BoolVar(&flags.follow, "follow", false, "go on with further packets, until interrupted")
	cmd.Flags().StringVarP(
		&flags.namespace, "namespace", "n", "", "only packets from or to Pods of this `NAMESPACE`",
	)
	flags.format.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	return cmd
}

// policyLogFlags are the flags of policy log.
type policyLogFlags struct {
	admin     adminFlags
	follow    bool
	namespace string
	format    output
}

func (f *policyLogFlags) run(cmd *cobra.Command) error {
	if err := f.format.check(); err != nil {
		return err
	}
	query := make(url.Values)
	if f.follow {
		query.Set(droplog.ParamFollow, "")
	}
	if f.namespace != "" {
		query.Set(droplog.ParamNamespace, f.namespace)
	}
	return f.admin.printLines(cmd, droplog.Path+"?"+query.Encode(), f.format.shown(recordLine))
}

// recordLine returns the line for people of a line of the page.
func recordLine(text []byte) (string, error) {
	var r droplog.Record
	if err := json.Unmarshal(text, &r); err != nil {
		return "", fmt.Errorf("the agent's log: %w", err)
	}
	return explain.Plain(r.String()), nil
}
