package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/evidence"
)

func newTop() *cobra.Command {
	var flags topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Print the names, clients and routes of a running process with most failures",
		Long: `Print which names, addresses and URLs of a running server, agent or gateway fail most
often and why, or which clients or routes, in the last 15 to 30 minutes.

Counts are estimated from a sample, see "portolan tail --help", and never include
events of other names. What is usual, such as success, is left out unless --reason
asks for it. The share is that of all events of the kind with these reasons.

The command talks to the admin address of the process: on loopback, or elsewhere with
a token (--admin-token-file) or a client certificate (--admin-cert).`,
		Example: `  portolan top
  portolan top --kind query --by client
  portolan top --kind request --by route --reason no-endpoint,upstream-5xx
  portolan top --kind query --reason ok -n 5`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&flags.by, "by", string(evidence.BySubject), "count by `WHAT`: subject, client or route")
	cmd.Flags().IntVarP(&flags.limit, "limit", "n", 20, "print at most this `NUMBER` of lines")
	var bys []string
	for _, by := range evidence.Bys() {
		bys = append(bys, string(by))
	}
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(bys, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	return cmd
}

// topFlags are the flags of top.
type topFlags struct {
	eventFlags
	by    string
	limit int
}

func (f *topFlags) run(cmd *cobra.Command) error {
	if err := f.format.check(); err != nil {
		return err
	}
	query := f.query()
	query.Set(evidence.ParamBy, f.by)
	query.Set(evidence.ParamLimit, strconv.Itoa(f.limit))
	ctx, cancel := context.WithTimeout(cmd.Context(), adminTime)
	defer cancel()
	answer, err := f.admin.open(ctx, http.MethodGet, evidence.TopPath+"?"+query.Encode())
	if err != nil {
		return err
	}
	defer answer.Close()
	var top evidence.Top
	text, err := readAnswer(answer)
	if err == nil {
		err = json.Unmarshal(text, &top)
	}
	if err != nil {
		return fmt.Errorf("the counts of the process: %w", err)
	}
	if f.format == "json" {
		return printJSON(cmd.OutOrStdout(), &top)
	}
	return f.print(cmd.OutOrStdout(), &top)
}

// print prints the counts for people.
func (f *topFlags) print(out io.Writer, top *evidence.Top) error {
	if len(top.Items) == 0 {
		_, err := fmt.Fprintf(out, "no such events since %s\n", top.Since.UTC().Format(time.RFC3339))
		return err
	}
	const width, tab, padding = 0, 8, 3
	w := tabwriter.NewWriter(out, width, tab, padding, ' ', 0)
	fmt.Fprintf(w, "KIND\tREASON\tCOUNT\tSHARE\t%s\n", strings.ToUpper(f.by))
	for _, item := range top.Items {
		fmt.Fprintf(
			w,
			"%s\t%s\t%d\t%.1f%%\t%s\n",
			explain.Plain(item.Kind),
			explain.Plain(item.Reason),
			item.Count,
			100*item.Share,
			explain.Plain(item.Key),
		)
	}
	return w.Flush()
}
