package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dns/respond"
	gatewayapp "portolan.dev/portolan/internal/gateway/app"
	"portolan.dev/portolan/internal/pod/explain"
	policyapp "portolan.dev/portolan/internal/policy/app"
	"portolan.dev/portolan/internal/support/evidence"
)

func newTail() *cobra.Command {
	var flags tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print recent queries, drops and requests of a running process",
		Long: `Print recent events of a running server, agent or gateway, the oldest first: queries
of DNS, packets that policies denied, and requests at the gateway, each with a reason
in one word, such as no-service, policy or no-endpoint.

The events are a sample. Of failures the first ones of each second and reason are all
there; of what is above that, and of successes, one in admin.evidence.oneIn. "x128" at
the end of a line says that the event stands for 128. Of each reason the last events
are kept, whatever other reasons have.

The command talks to the admin address of the process: on loopback, or elsewhere with
a token (--admin-token-file) or a client certificate (--admin-cert).`,
		Example: `  portolan tail --follow
  portolan tail --reason no-service,no-namespace --client shop/web-0
  portolan tail --kind drop --admin 127.0.0.1:9154 -o json
  kubectl exec -n kube-system portolan-node-x7k2q -- /portolan tail --admin 127.0.0.1:9154`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&flags.follow, "follow", false, "go on with further events, until interrupted")
	cmd.Flags().StringVar(
		&flags.client, "client", "", "only events of the client with this `ADDR`, prefix or NAMESPACE/POD",
	)
	cmd.Flags().StringVar(&flags.subject, "subject", "", "only events whose name, address or URL contains this `TEXT`")
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("subject", cobra.NoFileCompletions)
	return cmd
}

// eventFlags are the flags of commands that ask a process for events.
type eventFlags struct {
	admin   adminFlags
	kind    string
	reasons []string
	format  output
}

func (f *eventFlags) add(cmd *cobra.Command) {
	f.admin.add(cmd)
	f.admin.addAccess(cmd)
	cmd.Flags().StringVar(&f.kind, "kind", "", "only events of this `KIND`: query, drop or request")
	cmd.Flags().StringSliceVar(&f.reasons, "reason", nil, "only events with this `REASON`, or one of several with commas")
	f.format.add(cmd)
	var kinds []string
	for _, s := range evidenceSources() {
		kinds = append(kinds, s.kind)
	}
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("reason", f.completeReason)
}

// evidenceSource is a kind of events with their reasons.
type evidenceSource struct {
	kind    string
	reasons []evidence.Reason
}

// evidenceSources returns all kinds.
func evidenceSources() []evidenceSource {
	return []evidenceSource{
		{respond.EvidenceKind, respond.EvidenceReasons()},
		{policyapp.EvidenceKind, policyapp.EvidenceReasons()},
		{gatewayapp.EvidenceKind, gatewayapp.EvidenceReasons()},
	}
}

// completeReason completes the last reason of a list, of the kind if there is one.
func (f *eventFlags) completeReason(
	_ *cobra.Command, _ []string, typed string,
) (all []cobra.Completion, _ cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	for _, s := range evidenceSources() {
		for _, r := range s.reasons {
			word := before + r.Word
			isKnown := slices.ContainsFunc(all, func(c cobra.Completion) bool {
				known, _, _ := strings.Cut(c, "\t")
				return known == word
			})
			if !isKnown && (f.kind == "" || f.kind == s.kind) {
				all = append(all, cobra.CompletionWithDesc(word, r.Meaning))
			}
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// query returns the parameters that the flags stand for.
func (f *eventFlags) query() url.Values {
	query := make(url.Values)
	setNotEmpty(query, evidence.ParamKind, f.kind)
	setNotEmpty(query, evidence.ParamReason, strings.Join(f.reasons, ","))
	return query
}

func setNotEmpty(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// tailFlags are the flags of tail.
type tailFlags struct {
	eventFlags
	follow          bool
	client, subject string
}

func (f *tailFlags) run(cmd *cobra.Command) error {
	if err := f.format.check(); err != nil {
		return err
	}
	query := f.query()
	if f.follow {
		query.Set(evidence.ParamFollow, "")
	}
	setNotEmpty(query, evidence.ParamClient, f.client)
	setNotEmpty(query, evidence.ParamSubject, f.subject)
	return f.admin.printLines(cmd, evidence.TailPath+"?"+query.Encode(), f.format.shown(eventLine))
}

// eventLine returns the line for people of a line of the page.
func eventLine(text []byte) (string, error) {
	var m struct {
		Missed int `json:"missed"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return "", fmt.Errorf("the events of the process: %w", err)
	}
	if m.Missed > 0 {
		return fmt.Sprintf(
			"# %s missing: they came faster than they were read",
			many(m.Missed, "event is", "events are"),
		), nil
	}
	var e evidence.Event
	if err := json.Unmarshal(text, &e); err != nil {
		return "", fmt.Errorf("the events of the process: %w", err)
	}
	client := e.ClientText()
	switch {
	case e.Pod != "":
		client = e.Pod
	case client == "":
		client = "-"
	}
	line := fmt.Sprintf(
		"%s %-7s %-15s %-20s %s",
		e.Time.UTC().Format("2006-01-02T15:04:05.000Z"),
		e.Kind,
		e.Reason,
		client,
		orDash(e.Subject),
	)
	if e.Detail != "" {
		line += " " + e.Detail
	}
	if e.Weight > 1 {
		line += fmt.Sprintf(" x%d", e.Weight)
	}
	return explain.Plain(line), nil
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
