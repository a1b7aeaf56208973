package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/pod/explain"
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

// adminFlag is the flag --admin of commands that talk to a running server.
type adminFlag string

func (f *adminFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(f), "admin", "127.0.0.1:9153", "the server's admin address is `ADDR:PORT`")
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
}

// adminTime is how long a command waits for a running server.
const adminTime = 30 * time.Second

// request sends a request to the admin address and copies its answer to w.
func (f *adminFlag) request(ctx context.Context, method, path string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, adminTime)
	defer cancel()
	answer, err := f.open(ctx, method, path)
	if err != nil {
		return err
	}
	defer answer.Close()
	_, err = io.Copy(w, answer)
	return err
}

// open sends a request to the admin address and returns its answer, which the caller closes.
func (f *adminFlag) open(ctx context.Context, method, path string) (answer io.ReadCloser, err error) {
	at := string(*f)
	if _, err := netip.ParseAddrPort(at); err != nil {
		return nil, fmt.Errorf("--admin: %q is not an address and port, such as 127.0.0.1:9153", at)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+at+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the server's admin address does not answer: %w; --admin names another", err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxProbe)) // what there is of the reason
		return nil, fmt.Errorf("%s: %s", at, explain.Plain(strings.TrimSpace(string(text))))
	}
	return response.Body, nil
}

func newCacheDump() *cobra.Command {
	var admin adminFlag
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
			return admin.request(cmd.Context(), http.MethodGet, cachePath, cmd.OutOrStdout())
		},
	}
	admin.add(cmd)
	return cmd
}

func newCacheFlush() *cobra.Command {
	var admin adminFlag
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
			return admin.request(cmd.Context(), http.MethodPost, path, cmd.OutOrStdout())
		},
	}
	admin.add(cmd)
	return cmd
}
