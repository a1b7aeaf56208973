package explain

import (
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// unqueried sets the outcome to not known if the name is an alias of one outside the
// cluster, of which no server was queried. The resolver was simulated as if it existed.
func (d *diagnoser) unqueried() {
	last := d.e.last()
	if last == nil {
		return
	}
	alias := ""
	for i := range last.Exchanges {
		q := &last.Exchanges[i]
		switch {
		case q.assumedTarget != "":
			alias = q.assumedTarget
		case q.Result == dnswire.NoError.String():
			return // it has records
		}
	}
	if alias == "" {
		return
	}
	d.e.Outcome = unknown
	d.e.Why = "it is an alias of " + alias + ", which is outside the cluster, and no server was queried"
	d.add("outside", "use --live to query the running server",
		"%s is outside the cluster: the answer depends on servers that were not queried", alias)
}

// suppressed reports whether a name outside the cluster, or an alias of one, is answered
// without records of the types because of dns.suppress.
func (d *diagnoser) suppressed() bool {
	for i := range d.e.Candidates {
		c := &d.e.Candidates[i]
		isOther := func(q Exchange) bool { return q.Result != noData }
		at := slices.IndexFunc(c.Exchanges, func(q Exchange) bool { return q.code == uint16(dnswire.EDEFiltered) })
		if at < 0 || slices.ContainsFunc(c.Exchanges, isOther) {
			continue
		}
		q := &c.Exchanges[at]
		names := d.serverNames(c.Name)
		name := names[len(names)-1]
		if n := len(q.Records); n > 0 {
			name = q.Records[n-1].Data // of the last alias
		}
		types := strings.Join(d.e.Types, " and no ")
		if d.Model == nil {
			d.add("suppressed", "look up another type, or change dns.suppress",
				"%s is outside the cluster, and dns.suppress has it answered with no %s records", name, types)
			return true
		}
		d.add("suppressed", "look up another type, or check dns.suppress of the server",
			"%s is outside the cluster, and the server or its upstream gives no %s records of it (filtered%s)",
			name, types, noteOf(q))
		return true
	}
	return false
}
