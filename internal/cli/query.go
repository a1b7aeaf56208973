package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/respond"
)

func newQuery() *cobra.Command {
	var source sourceFlags
	var format output
	cmd := &cobra.Command{
		Use:   "query NAME [TYPE]",
		Short: "Ask the compiled zone, without a socket",
		Long: `Ask the compiled zone, without a socket, and print what a client would get
over TCP. The status is 1 when the answer is negative.`,
		Example: "  portolan query web.shop.svc.cluster.local --manifests examples/shop",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.check(); err != nil {
				return err
			}
			q := dnswire.Question{Name: args[0], Type: dnswire.TypeA, UDPSize: respond.DefaultUDPSize, Flags: dnswire.FlagRD}
			if len(args) > 1 {
				t, err := dnswire.ParseType(args[1])
				if err != nil {
					return err
				}
				q.Type = t
			}
			packet, err := dnswire.NewQuery(q)
			if err != nil {
				return err
			}
			d, _, err := source.load(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			client := respond.Client{Transport: respond.TCP}
			wire := d.Responder().NewWorker().Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
			m, err := dnswire.ParseMessage(wire)
			if err != nil {
				return err
			}
			if format == "json" {
				err = printJSON(cmd.OutOrStdout(), m)
			} else {
				_, err = fmt.Fprint(cmd.OutOrStdout(), m)
			}
			if err == nil && (len(m.Answer) == 0 || m.Status != dnswire.NoError.String()) {
				return errNegative
			}
			return err
		},
	}
	source.add(cmd)
	format.add(cmd)
	return cmd
}
