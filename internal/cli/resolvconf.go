package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dns/resolvconf"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/deadline"
)

func newResolvConf() *cobra.Command {
	var flags resolvConfFlags
	cmd := &cobra.Command{
		Use:   "resolvconf NAMESPACE/POD",
		Short: "Print the resolv.conf that a Pod gets",
		Long: `Print the resolv.conf of a Pod, as the kubelet generates it from the Pod's
dnsPolicy and dnsConfig and the node's settings. Entries that are omitted, or do
not have the effect they seem to have, are reported on standard error.

NAMESPACE/POD names a Pod, or a Deployment, StatefulSet, DaemonSet, Job or CronJob
whose Pods are meant: shop/web-0, shop/web, or shop/deployment/web. With
--filename, the Pod or workload is read from that file.

With --live the command compares it with the file that a Pod has, whatever the
order of its lines, and prints what differs. Without --node-resolv-conf, the
node's search domains are not compared, and with the policy Default nothing is.

The exit status is 1 if the API server rejects the Pod for its DNS settings, if
the Pod does not start because of them, or if its file differs.`,
		Example: `  portolan resolvconf shop/web --manifests examples/shop
  portolan resolvconf -f pod.yaml --node-resolv-conf /etc/resolv.conf
  kubectl exec -n shop web-0 -- cat /etc/resolv.conf | portolan resolvconf shop/web-0 --live -`,
		Args:              arguments(0, 1),
		ValidArgsFunction: flags.pod.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd, args)
		},
	}
	flags.pod.add(cmd)
	flags.format.add(cmd)
	cmd.Flags().StringVar(
		&flags.order, "order", orderDocumented,
		"print the lines in this `ORDER`: documented (nameserver first, as in Kubernetes' documentation) or runtime "+
			"(search first, as containerd and CRI-O write them)",
	)
	cmd.Flags().StringVar(
		&flags.live, "live", "", "compare with the resolv.conf that the Pod has, in `FILE` or on standard input (-)",
	)
	_ = cmd.RegisterFlagCompletionFunc("order", cobra.FixedCompletions(orders, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagFilename("live")
	return cmd
}

// The values of --order.
const (
	orderDocumented = "documented"
	orderRuntime    = "runtime"
)

var orders = []cobra.Completion{orderDocumented, orderRuntime}

type resolvConfFlags struct {
	pod    podFlags
	format output
	order  string
	live   string
}

func (f *resolvConfFlags) check() error {
	switch {
	case f.order != orderDocumented && f.order != orderRuntime:
		return fmt.Errorf("--order %q is not %s or %s", f.order, orderDocumented, orderRuntime)
	case f.live == "-" && (f.pod.file == "-" || f.pod.source.manifests == "-"):
		return errors.New("--live - excludes --filename - and --manifests -: there is one standard input")
	case f.live != "" && f.format == "json":
		return exclusive("live", "output json")
	}
	return f.format.check()
}

func (f *resolvConfFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(); err != nil {
		return err
	}
	ref, err := f.pod.argument(cmd, args)
	if err != nil {
		return err
	}
	live, err := f.readLive(cmd)
	if err != nil {
		return err
	}
	c, err := f.pod.read(cmd, ref)
	if err != nil {
		return err
	}
	r := c.pods.ResolvConf(&c.subject, c.node)
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	same := true
	switch {
	case f.format == "json":
		err = printJSON(stdout, newResolvConfJSON(&c, r))
	case f.live != "":
		printResolvConfNotes(r, &c, stderr)
		same, err = compare(stdout, r.Resolution, live)
	default:
		printResolvConfNotes(r, &c, stderr)
		_, err = io.WriteString(stdout, f.text(r.Config))
	}
	if err == nil && (len(r.Refused) > 0 || r.NotStarted != nil || !same) {
		return errNegative
	}
	return err
}

// text returns the file in the chosen order.
func (f *resolvConfFlags) text(c resolvconf.Config) string {
	if f.order == orderRuntime {
		return c.RuntimeText()
	}
	return c.String()
}

// readLive reads the resolv.conf that the Pod has, if the flag names it. It prints the lines
// that have no effect.
func (f *resolvConfFlags) readLive(cmd *cobra.Command) (live resolvconf.Config, err error) {
	var from io.Reader
	switch f.live {
	case "":
		return live, nil
	case "-":
		from = cmd.InOrStdin()
	default:
		text, err := deadline.ReadFile(f.live, deadline.File, deadline.Small)
		if err != nil {
			return live, fmt.Errorf("--live: %w", err)
		}
		from = bytes.NewReader(text)
	}
	live, problems, err := resolvconf.Parse(from)
	if err != nil {
		return live, fmt.Errorf("--live: %w", err)
	}
	for _, p := range problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "portolan: warning: --live %s:%d: %s\n", f.live, p.Line, p.Err)
	}
	return live, nil
}

// compare prints the differences between the computed file and the one that the Pod has,
// and reports whether there are none. It says which part was not compared.
func compare(stdout io.Writer, r dnsconfig.Resolution, live resolvconf.Config) (same bool, err error) {
	differences, err := dnsconfig.Compare(r, live)
	if err != nil {
		return false, fmt.Errorf("--live: nothing to compare with: %w; give --node-resolv-conf FILE", err)
	}
	for _, d := range differences {
		fmt.Fprintln(stdout, explain.Plain(d))
	}
	if len(differences) > 0 {
		return false, nil
	}
	verdict := "the Pod has this resolv.conf"
	if r.Unknown != dnsconfig.Nothing {
		verdict = "the Pod has these nameservers, search domains and options; search domains after them were not compared"
	}
	_, err = fmt.Fprintln(stdout, verdict)
	return true, err
}

// printResolvConfNotes prints the problems with a resolv.conf, and what is not known of it.
func printResolvConfNotes(r podapp.ResolvConf, c *chosen, stderr io.Writer) {
	for _, e := range r.Refused {
		fmt.Fprintf(stderr, "portolan: the API server refuses the Pod: %s\n", e)
	}
	if r.NotStarted != nil {
		fmt.Fprintf(stderr, "portolan: the Pod does not start: %s\n", r.NotStarted)
	}
	for _, w := range slices.Concat(r.Warnings, r.Hostname.Warnings) {
		reason := ""
		if w.Reason != "" {
			reason = " (event " + w.Reason + ")"
		}
		fmt.Fprintf(stderr, "portolan: warning: %s%s\n", w, reason)
	}
	for _, n := range resolvConfNotes(r, c) {
		fmt.Fprintf(stderr, "portolan: note: %s\n", n)
	}
}

// resolvConfNotes returns what is not known of a resolv.conf.
func resolvConfNotes(r podapp.ResolvConf, c *chosen) (notes []string) {
	if unknown := explain.UnknownText(r.Unknown); unknown != "" {
		notes = append(notes, unknown)
	}
	if c.subject.Finished() {
		notes = append(notes, c.subject.String()+" has finished; this is the file that it had")
	}
	return notes
}

// resolvConfJSON is the JSON output of resolvconf.
type resolvConfJSON struct {
	Pod         string        `json:"pod"` // kind and key
	Policy      string        `json:"policy"`
	Nameservers []string      `json:"nameservers"`
	Searches    []string      `json:"searches"`
	Options     []string      `json:"options"`
	Hostname    string        `json:"hostname"`
	FQDN        string        `json:"fqdn"`
	Text        string        `json:"resolvConf"`
	Warnings    []warningJSON `json:"warnings"`
	Notes       []string      `json:"notes"`
	Errors      []string      `json:"errors"`
}

type warningJSON struct {
	Reason  string `json:"reason,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

func newResolvConfJSON(c *chosen, r podapp.ResolvConf) resolvConfJSON {
	j := resolvConfJSON{
		Pod: c.subject.String(), Policy: string(r.Policy),
		Nameservers: []string{}, Searches: append([]string{}, r.Config.Searches...), Options: []string{},
		Hostname: r.Hostname.Kernel, FQDN: r.Hostname.FQDN, Text: r.Config.String(),
		Warnings: []warningJSON{}, Notes: append([]string{}, resolvConfNotes(r, c)...), Errors: []string{},
	}
	for _, addr := range r.Config.Nameservers {
		j.Nameservers = append(j.Nameservers, addr.String())
	}
	for _, o := range r.Config.Options {
		j.Options = append(j.Options, o.String())
	}
	for _, w := range slices.Concat(r.Warnings, r.Hostname.Warnings) {
		j.Warnings = append(j.Warnings, warningJSON{w.Reason, w.Field, w.Message})
	}
	for _, e := range r.Refused {
		j.Errors = append(j.Errors, e.Error())
	}
	if r.NotStarted != nil {
		j.Errors = append(j.Errors, r.NotStarted.Error())
	}
	return j
}
