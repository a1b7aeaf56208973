//go:build linux

package rolling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/test/upstream/traffic"
)

// Row is a rolling update with a service proxy.
type Row struct {
	Proxy string
	Grace time.Duration // see Config
	*Result
}

// Table renders rolling updates as Markdown.
func Table(rows []Row) string {
	var text strings.Builder
	text.WriteString("| Pods serve on for | proxy | failed: cluster IP | node port | lasting | ended by a Pod | " +
		"sent again | late | rollout |\n|" + strings.Repeat("---|", 9) + "\n")
	for _, r := range rows {
		lasting := r.Internal.Lasting
		lasting.Add(r.External.Lasting)
		late := "0"
		if len(r.Late) > 0 {
			late = fmt.Sprintf("%d, up to %d ms", len(r.Late), slices.Max(r.Late).Milliseconds())
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %d | %d | %s | %s |\n",
			seconds(r.Grace), r.Proxy, failed(r.Internal.New), failed(r.External.New), failed(lasting), lasting.Ended,
			r.Internal.Repeated+r.External.Repeated, late, seconds(r.Took))
	}
	return text.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

func failed(c traffic.Count) string { return fmt.Sprintf("%d of %d", c.Failed, c.Opened) }
