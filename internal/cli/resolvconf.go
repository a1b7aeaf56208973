package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	podapp "portolan.dev/portolan/internal/pod/app"
)

func newResolvConf() *cobra.Command {
	var pod podFlags
	var format output
	cmd := &cobra.Command{
		Use:   "resolvconf NAMESPACE/POD",
		Short: "Print the resolv.conf that a Pod gets",
		Long: `Print the resolv.conf of a Pod, as the kubelet generates it from the Pod's
dnsPolicy and dnsConfig and the node's settings. Entries that are omitted, or do
not have the effect they seem to have, are reported on standard error.

NAMESPACE/POD names a Pod, or a Deployment, StatefulSet, DaemonSet, Job or CronJob
whose Pods are meant: shop/web-0, shop/web, or shop/deployment/web. With
--filename, the Pod or workload is read from that file.

The exit status is 1 if the API server rejects the Pod for its DNS settings, or if
the Pod does not start because of them.`,
		Example: `  portolan resolvconf shop/web --manifests examples/shop
  portolan resolvconf -f pod.yaml --node-resolv-conf /etc/resolv.conf`,
		Args:              arguments(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.check(); err != nil {
				return err
			}
			ref, err := pod.argument(cmd, args)
			if err != nil {
				return err
			}
			c, err := pod.read(cmd, ref)
			if err != nil {
				return err
			}
			r := c.pods.ResolvConf(&c.subject, c.node)
			if format == "json" {
				err = printJSON(cmd.OutOrStdout(), newResolvConfJSON(&c, r))
			} else {
				err = printResolvConf(r, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if err == nil && (len(r.Refused) > 0 || r.NotStarted != nil) {
				return errNegative
			}
			return err
		},
	}
	pod.add(cmd)
	format.add(cmd)
	return cmd
}

// printResolvConf prints the file on stdout and its problems on stderr.
func printResolvConf(r podapp.ResolvConf, stdout, stderr io.Writer) error {
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
	_, err := io.WriteString(stdout, r.Config.String())
	return err
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
		Warnings: []warningJSON{}, Errors: []string{},
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
