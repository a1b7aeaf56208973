package live

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/path"
)

// tried is an attempt of the explanation, and what came of it.
type tried struct {
	*connection.Attempt
	seen probed
	// ends are the endpoints that the client may get, by themselves.
	ends []end
}

// end is an endpoint of an attempt, and what came of it.
type end struct {
	*connection.Use
	seen probed
}

// connect sends a connection, or a packet, to each address and to its endpoints, and compares the layers service and
// policy. It returns a connection that is open; nil if there is none.
func (c *comparer) connect(ctx context.Context) (open *tried) {
	all, protocol := c.attempts()
	switch {
	case protocol == "sctp":
		c.notCompared("connections of SCTP are not made")
		return nil
	case len(all) == 0:
		c.notCompared("there is no address to send to")
		return nil
	}
	send := c.dial
	if protocol == "udp" {
		send = c.packet
	}
	var running sync.WaitGroup
	for i := range all {
		t := &all[i]
		running.Go(func() { t.seen = send(ctx, t.seen.at) })
		for k := range t.ends {
			e := &t.ends[k]
			running.Go(func() { e.seen = send(ctx, e.seen.at) })
		}
	}
	running.Wait()
	c.layers(all)
	for i := range all {
		t := &all[i]
		for k := range t.ends {
			if conn := t.ends[k].seen.conn; conn != nil {
				conn.Close()
			}
		}
		switch {
		case t.seen.conn == nil:
		case open == nil:
			open = t
		default:
			t.seen.conn.Close()
		}
	}
	return open
}

// attempts returns the attempts with an address, and their protocol.
func (c *comparer) attempts() (all []tried, protocol string) {
	attempts := c.e.Connection.Attempts
	for i := range attempts[:min(len(attempts), mostAddresses)] {
		a := &attempts[i]
		text, proto, _ := strings.Cut(a.Address, "/")
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			continue
		}
		protocol = proto
		t := tried{Attempt: a, seen: probed{at: at}}
		if !c.passesDirectly(a) {
			all = append(all, t)
			continue
		}
		for k := range a.Endpoints {
			u := &a.Endpoints[k]
			to, err := netip.ParseAddrPort(u.Address)
			if err == nil && u.Used && to != at && len(t.ends) < mostEndpoints {
				t.ends = append(t.ends, end{u, probed{at: to}})
			}
		}
		all = append(all, t)
	}
	return all, protocol
}

// passesDirectly reports whether a connection of the client to an endpoint is judged as one to the address is: the
// client is in the cluster, its node translates the address, and endpoints see the client's.
func (c *comparer) passesDirectly(a *connection.Attempt) bool {
	return c.Client.Place != connection.Outside && a.Masqueraded == "" &&
		!slices.ContainsFunc(a.Endpoints, func(u connection.Use) bool { return u.TranslatedLater() })
}

// layers compares the layers service and policy.
func (c *comparer) layers(all []tried) {
	var services, policies []*path.Live
	for i := range all {
		services = append(services, all[i].service())
		policies = append(policies, all[i].policy()...)
	}
	if s := c.e.Step(path.Service); s != nil {
		s.Live = joined(services)
	}
	if s := c.e.Step(path.Policy); s != nil {
		if s.Live = joined(policies); s.Live == nil {
			s.Live = &path.Live{NotCompared: "there is no endpoint to send to"}
		}
	}
}

// joined returns the comparison of a layer by those of its parts: they differ if one does, and agree if one does and
// none differs.
func joined(all []*path.Live) (made *path.Live) {
	rank := func(l *path.Live) int {
		switch {
		case l.Differs():
			return 2
		case l.Agrees != nil:
			return 1
		}
		return 0
	}
	for _, l := range all {
		switch {
		case made == nil || rank(l) > rank(made):
			made = l
		case rank(l) == rank(made) && l.Seen != made.Seen:
			both := *made
			both.Expected, both.Seen = also(made.Expected, l.Expected), also(made.Seen, l.Seen)
			for _, cause := range l.Likely {
				if !slices.Contains(both.Likely, cause) {
					both.Likely = append(slices.Clone(both.Likely), cause)
				}
			}
			made = &both
		}
	}
	return made
}

func also(a, b string) string {
	if b == "" || b == a {
		return a
	}
	return a + "; " + b
}

// denied reports whether policies deny the connection to some endpoints, and to all.
func (t *tried) denied() (some, all bool) {
	all = true
	used := false
	for i := range t.Endpoints {
		if u := &t.Endpoints[i]; u.Used {
			used = true
			some = some || u.Denied()
			all = all && u.Denied()
		}
	}
	return some, all && used
}

// service compares who has the address.
func (t *tried) service() *path.Live {
	seen := fmt.Sprintf("%s at %s", t.seen.result, t.seen.at)
	denied, _ := t.denied()
	switch want := t.Outcome; {
	case t.seen.result == interrupted:
		return unclear("", "", "it was interrupted")
	case want == connection.NotKnown:
		return unclear("", seen, "the model does not know what is at %s", t.seen.at)
	case t.seen.open() && want == connection.Connected, t.seen.open() && denied:
		return compared(connected, seen, true) // if policies deny it, their layer differs
	case t.seen.result == silent && want == connection.Connected && t.refused():
		return t.notConnected(seen)
	case t.seen.result == silent && want != connection.Refused:
		return unclear(expectedAs(want), seen, "silence says nothing about a datagram")
	case want == connection.Connected:
		return t.notConnected(seen)
	case want == connection.TimedOut && denied && t.seen.lost():
		return unclear("", seen, "policies drop the packets before")
	case want == connection.TimedOut && denied:
		return compared("no answer", seen, false, t.kernel("a program refuses the connection, which policies deny: the "+
			"agent of a node is stale, or none enforces policies")...)
	case want == connection.TimedOut:
		return compared("no answer", seen, t.seen.lost(), t.kernel(staleProxy)...)
	default:
		return compared(want, seen, t.seen.result == want, t.kernel(staleProxy)...)
	}
}

// refused reports whether each endpoint refuses what comes.
func (t *tried) refused() bool {
	serves := func(e end) bool { return e.seen.result != refused }
	return len(t.ends) > 0 && !slices.ContainsFunc(t.ends, serves)
}

// staleProxy is the likely cause of another answer of an address.
const staleProxy = "the service proxy of the node is stale, or another one has the address"

// expectedAs returns an outcome as the results have it.
func expectedAs(outcome string) string {
	if outcome == connection.TimedOut {
		return noAnswer
	}
	return outcome
}

// notConnected compares the service of an address that does not connect, and should: by its endpoints.
func (t *tried) notConnected(seen string) *path.Live {
	if some, _ := t.denied(); some && t.seen.lost() {
		return unclear(connected, seen, "policies drop the packets to some of the endpoints")
	}
	var refuses, silence []string
	for i := range t.ends {
		switch e := &t.ends[i]; {
		case e.seen.result == refused:
			refuses = append(refuses, e.Address)
		case e.seen.lost():
			silence = append(silence, e.Address)
		}
	}
	switch {
	case len(refuses) > 0:
		return compared(connected, seen, false, "no program listens at "+strings.Join(refuses, ", "))
	case len(t.ends) == 0 && t.Service == "" && t.seen.result == refused:
		return compared(connected, seen, false, fmt.Sprintf("no program listens at %s", t.seen.at))
	case len(silence) > 0 && len(silence) == len(t.ends):
		return unclear(connected, seen, "packets do not come to its endpoints either, see policy")
	case len(t.ends) == 0 && t.Service == "" && t.seen.lost():
		return unclear(connected, seen, "packets do not come there, see policy")
	}
	return compared(connected, seen, false, t.kernel(staleProxy)...)
}

// kernel returns the likely causes of a difference, what the kernel of the node has first.
func (t *tried) kernel(usual string) []string {
	if t.Kernel != nil && len(t.Kernel.Differences) > 0 {
		return []string{"the kernel of the node differs from the model, so that its agent is stale: " +
			strings.Join(t.Kernel.Differences, "; ")}
	}
	if t.Kernel != nil && t.Kernel.Unread == "" {
		return []string{"a rule of another program comes first: the kernel has what the model has"}
	}
	return []string{usual}
}

// policy compares what policies decide on the endpoints; on the address itself if none was tried.
func (t *tried) policy() (all []*path.Live) {
	for i := range t.ends {
		all = append(all, judged(t.ends[i].Use, &t.ends[i].seen))
	}
	some, every := t.denied()
	switch {
	case len(all) > 0:
	case t.Outcome == connection.NotKnown && t.seen.lost() && !some: // nobody may have the address
	case len(t.Endpoints) == 1 && t.Endpoints[0].Used && t.Service == "":
		all = append(all, judged(&t.Endpoints[0], &t.seen))
	case t.Outcome == connection.NotKnown || t.seen.result == silent || t.seen.result == interrupted:
	case every:
		all = append(all, compared("no answer", t.seen.result, t.seen.lost(), unenforced))
	case some || t.Outcome != connection.Connected:
	case t.seen.open():
		all = append(all, compared("packets pass", t.seen.result, true))
	}
	return all
}

// unenforced and foreign are likely causes of packets that pass or are lost against the policies.
const (
	unenforced = "the agent of the node of one end is stale, or no agent enforces policies there"
	foreign    = "a firewall that is not Portolan's, a stale agent on the node of one end, or no route between their nodes"
)

// judged compares the policies of an endpoint.
func judged(u *connection.Use, p *probed) *path.Live {
	seen := fmt.Sprintf("%s at %s", p.result, p.at)
	var causes []string
	for _, why := range u.KernelDifferences() {
		causes = append(causes, "the kernel of the node differs from the model, so that its agent is stale: "+why)
	}
	switch {
	case p.result == interrupted:
		return unclear("", "", "it was interrupted")
	case p.result == silent:
		return unclear("", seen, "silence says nothing about a datagram")
	case u.Denied():
		return compared("no answer", seen, p.lost(), append(causes, unenforced)...)
	}
	return compared("packets pass", seen, p.passed(), append(causes, foreign)...)
}
