package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/kube/source"
)

func newZone() *cobra.Command {
	var flags sourceFlags
	var format output
	cmd := &cobra.Command{
		Use:   "zone [NAME]",
		Short: "Print the zones as RFC 1035 master files",
		Long: `Print the records of a cluster as RFC 1035 master files, sorted: all zones, or the
zone NAME.`,
		Example: "  portolan zone cluster.local --manifests examples/shop",
		Args:    arguments(0, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			c, _ := flags.read() // the zones of the defaults, if the file cannot be read
			return c.DNS.Zones, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.check(); err != nil {
				return err
			}
			l, err := load(cmd, &flags, source.Names)
			if err != nil {
				return err
			}
			zones, err := l.zoneFiles(args)
			if err != nil {
				return err
			}
			l.warnOfZones(cmd.ErrOrStderr())
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), slices.Concat(zones...))
			}
			return zone.WriteMaster(cmd.OutOrStdout(), zones)
		},
	}
	flags.addRead(cmd)
	format.add(cmd)
	return cmd
}

// zoneFiles returns the records of each zone that is loaded, or of the named one, SOA
// first.
func (l *onceCluster) zoneFiles(only []string) ([][]dnswire.Record, error) {
	entries, problems := l.dns.DB().Entries(), l.dns.ZoneProblems()
	unloaded := func(name dnsname.Name) int {
		return slices.IndexFunc(problems, func(p *localzone.ZoneError) bool { return p.Zone == name })
	}
	if len(only) > 0 {
		name, err := dnsname.Parse(only[0])
		if err != nil {
			return nil, err
		}
		if i := unloaded(name); i >= 0 {
			return nil, problems[i]
		}
		all := zoneNames(entries)
		entries = slices.DeleteFunc(entries, func(e zone.Entry) bool { return e.Zone != name })
		if len(entries) == 0 {
			return nil, fmt.Errorf("no zone %q; there are %s", only[0], strings.Join(all, ", "))
		}
	}
	entries = slices.DeleteFunc(entries, func(e zone.Entry) bool { return unloaded(e.Zone) >= 0 })
	return zone.Records(entries)
}

// zoneNames returns the names of all zones, sorted, without the trailing dot.
func zoneNames(entries []zone.Entry) (names []string) {
	for _, e := range entries {
		if e.SOA != nil {
			names = append(names, strings.TrimSuffix(e.Zone.String(), "."))
		}
	}
	slices.Sort(names)
	return names
}
