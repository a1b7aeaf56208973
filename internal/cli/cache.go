package cli

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dns/dnsname"
)

func newCache() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Print or flush the cache of a running server",
		Long: `Print or flush the cache of a server or an agent that runs on this host. The
commands talk to its admin address, which must be on loopback.`,
		Example: `  portolan cache dump
  portolan cache flush example.com
  kubectl exec -n kube-system deploy/portolan -- /portolan cache flush example.com`,
	}
	group(cmd)
	cmd.AddCommand(newCacheDump(), newCacheFlush())
	return cmd
}

func newCacheDump() *cobra.Command {
	var admin adminFlags
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Print the entries of the cache",
		Long: `Print the entries of the cache of a running server, sorted by name: the type of the
question, ANY for a name that does not exist, the response code, the number of
records, the rest of the TTL in seconds, and whether the entry is stale or the last
query failed.`,
		Example:           "  portolan cache dump --admin 127.0.0.1:9153",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return admin.print(cmd, http.MethodGet, cachePath)
		},
	}
	admin.add(cmd)
	return cmd
}

func newCacheFlush() *cobra.Command {
	var admin adminFlags
	cmd := &cobra.Command{
		Use:   "flush NAME",
		Short: "Remove a name from the cache",
		Long: `Remove NAME and all names below it from the cache of a running server, and print
how many entries that were. The root, ".", is all of it.`,
		Example:           "  portolan cache flush example.com",
		Args:              arguments(1, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := dnsname.Parse(args[0]); err != nil {
				return err
			}
			path := flushPath + "?" + url.Values{"name": args}.Encode()
			return admin.print(cmd, http.MethodPost, path)
		},
	}
	admin.add(cmd)
	return cmd
}
