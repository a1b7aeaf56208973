package app

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// WriteCache writes the entries of the cache as a table.
func (d *DNS) WriteCache(w io.Writer) error {
	const width, tab, padding = 0, 8, 2
	t := tabwriter.NewWriter(w, width, tab, padding, ' ', 0)
	fmt.Fprintln(t, "NAME\tTYPE\tRCODE\tRECORDS\tTTL\tSTATE")
	if kept := d.current.Load().cache; kept != nil {
		for _, e := range kept.List(time.Now()) {
			state, rcode := "fresh", e.RCode
			switch {
			case rcode == "":
				state, rcode = "failed: "+e.Failed, "-"
			case e.Failed != "":
				state = "kept, the last query failed: " + e.Failed
			case e.TTL <= 0:
				state = "stale"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\n", e.Name, e.Type, rcode, e.Records, int(e.TTL.Seconds()), state)
		}
	}
	return t.Flush()
}

// errNoCache is the error of FlushCache where nothing is forwarded.
var errNoCache = errors.New("there is no cache: nothing is forwarded")

// FlushCache removes the entries for a name and all names below it from the cache, and
// returns how many.
func (d *DNS) FlushCache(text string) (n int, err error) {
	name, err := dnsname.Parse(text)
	if err != nil {
		return 0, err
	}
	kept := d.current.Load().cache
	if kept == nil {
		return 0, errNoCache
	}
	return kept.Flush(name), nil
}
