package live

import (
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// name compares the lookups.
func (c *comparer) name() {
	s := c.e.Step(path.Name)
	switch {
	case s == nil:
	case c.Lookup == nil && c.Origin.Dialer == nil:
		s.Live = &path.Live{NotCompared: c.Origin.Why}
	case c.Lookup == nil:
		s.Live = &path.Live{NotCompared: "no query was sent"}
	default:
		s.Live = c.Lookup.compare()
	}
}

// compare compares the lookup of the model with that of packets.
func (l *Lookup) compare() *path.Live {
	model, seen := l.Model, l.Seen
	expected, got := outcome(model), outcomeOf(seen)
	switch {
	case len(l.Sent) == 0 && !model.Found():
		return &path.Live{Expected: expected, NotCompared: "no query was sent"}
	case len(l.Sent) == 0:
		return &path.Live{Expected: expected, NotCompared: "it takes no query"}
	case seen.NotKnown():
		return unclear(expected, got, "a server was not queried: %s", seen.Summary())
	case model.NotKnown():
		return unclear(expected, got, "the model does not know names outside the cluster")
	case model.Blocked() && !l.FromClient:
		return unclear(expected, got, "the queries were not sent from the Pod, whose queries are blocked")
	case model.Blocked():
		return compared(expected, got, seen.Answers() == stubresolver.TryAgain,
			"the agent of the Pod's node is stale, or none enforces the policies of its queries")
	case !seen.Found() && !model.Found():
		return compared(expected, got, seen.Answers() == model.Answers(), l.likely()...)
	}
	return compared(expected, got, model.Found() && seen.Found() && slices.Equal(data(model), data(seen)), l.likely()...)
}

// likely returns the likely causes of another answer than the model's.
func (l *Lookup) likely() (causes []string) {
	lost := l.Seen.Answers() == stubresolver.TryAgain
	switch {
	case l.Server.IsValid() && lost:
		return []string{fmt.Sprintf("no DNS server answers at %s, which --server names", l.Server)}
	case lost && l.FromClient:
		return []string{"the servers of the Pod's resolv.conf do not run, or its packets do not reach them"}
	case !l.Server.IsValid() && !l.FromClient:
		causes = append(causes, "this machine sent the queries, and may not reach the cluster's DNS; --server names an "+
			"address that it reaches")
	}
	if !lost {
		causes = append(causes, stale)
	}
	return causes
}

// stale is the likely cause of another answer.
const stale = "the server is stale, or not the one of this cluster; run the command again, in case a change was on " +
	"its way"

// outcome says how a lookup ends.
func outcome(e *explain.Explanation) string {
	if e.Blocked() {
		return "no answer"
	}
	return outcomeOf(e)
}

// outcomeOf says how a lookup ends by its answers, whatever its diagnosis.
func outcomeOf(e *explain.Explanation) string {
	switch all := data(e); {
	case e.NotKnown():
		return "not known"
	case e.Answers() == stubresolver.Found && len(all) > 0:
		return strings.Join(all, ", ")
	case e.Answers() == stubresolver.TryAgain:
		return "no answer"
	}
	return e.Answers().String()
}

// data returns what the records have, in order, without aliases.
func data(e *explain.Explanation) (all []string) {
	for _, r := range e.Records {
		if r.Type != "CNAME" && !slices.Contains(all, r.Data) {
			all = append(all, r.Data)
		}
	}
	slices.Sort(all)
	return all
}
