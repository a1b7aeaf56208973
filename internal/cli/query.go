package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/kube/source"
)

func newQuery() *cobra.Command {
	var flags sourceFlags
	var format output
	cmd := &cobra.Command{
		Use:   "query NAME [TYPE]",
		Short: "Query a name without a server",
		Long: `Query a name and print the response that a client of the server would get over
TCP. No server is needed: the cluster is read as serve reads it.

NAME is fully qualified; no search path is applied. TYPE is A, AAAA, SRV, PTR or
any other type, by default A. The exit status is 1 if the answer is negative.`,
		Example: `  portolan query web.shop.svc.cluster.local --manifests examples/shop
  portolan query _http._tcp.web.shop.svc.cluster.local SRV --manifests examples/shop`,
		Args: arguments(1, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return flags.completeFQDN(cmd)
			}
			return completeType(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.check(); err != nil {
				return err
			}
			packet, err := newPacket(args)
			if err != nil {
				return err
			}
			l, err := load(cmd, &flags, source.Names)
			if err != nil {
				return err
			}
			l.warnOfZones(cmd.ErrOrStderr())
			client := respond.Client{Transport: respond.TCP}
			wire, later := l.dns.Responder().NewWorker(0).Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
			if later != nil {
				for wire = range later.Answers(cmd.Context()) {
					break // a query has one response message
				}
			}
			m, err := dnswire.ParseMessage(wire)
			if err != nil {
				return err
			}
			return printMessage(cmd, m, format)
		},
	}
	flags.addRead(cmd)
	format.add(cmd)
	return cmd
}

// newPacket returns the query for the arguments NAME and TYPE.
func newPacket(args []string) ([]byte, error) {
	if _, err := dnsname.Parse(args[0]); err != nil {
		return nil, err
	}
	q := dnswire.QuerySpec{Name: args[0], Type: dnswire.TypeA, UDPSize: respond.DefaultUDPSize, Flags: dnswire.FlagRD}
	if len(args) > 1 {
		var err error
		if q.Type, err = dnswire.ParseType(args[1]); err != nil {
			return nil, fmt.Errorf("%w; use one such as A, AAAA, SRV, PTR or TXT", err)
		}
	}
	return dnswire.NewQuery(q)
}

func printMessage(cmd *cobra.Command, m *dnswire.Message, format output) (err error) {
	if format == "json" {
		err = printJSON(cmd.OutOrStdout(), m)
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), m)
	}
	if err == nil && (len(m.Answer) == 0 || m.Status != dnswire.NoError.String()) {
		if m.Status == dnswire.Refused.String() {
			fmt.Fprintln(
				cmd.ErrOrStderr(),
				"portolan: hint: NAME must be fully qualified, such as web.shop.svc.cluster.local, or "+
					"10.0.96.10.in-addr.arpa for the address 10.96.0.10",
			)
		}
		return errNegative
	}
	return err
}

// completeType returns the completions of TYPE.
func completeType(args []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{
		"A", "AAAA", "CNAME", "NS", "PTR", "SOA", "SRV", "TXT", "ANY",
	}, cobra.ShellCompDirectiveNoFileComp
}
