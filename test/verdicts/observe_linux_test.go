package verdicts

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/pod/suite"
	"portolan.dev/portolan/test/world"
)

// observed is what packets and requests did.
type observed struct {
	// outcome is what the client sees, as an assertion has it; empty if no assertion holds of it, such as of connections
	// of which some are dropped.
	outcome suite.Outcome
	addrs   []string // that the name has, sorted
	servers []string // that answered, sorted; the Pods behind a gateway
	// status, location, rules and services are those of the responses.
	status   int
	location string
	rules    []string
	services []string
	note     string // for a message
	// depends: some tries are refused and the others dropped, so that what a client sees depends on the address or the
	// endpoint that it tries last. There are no assertions on that.
	depends bool
}

func (o *observed) String() string {
	return fmt.Sprintf("%s %v %v %d %s %v %v %s", o.outcome, o.addrs, o.servers, o.status, o.location, o.rules, o.services, o.note)
}

// observe sends what a question is about.
func (q *question) observe(ctx context.Context) (*observed, error) {
	addrs := q.addrs
	o := new(observed)
	if q.request == nil && q.name != "" {
		l, err := q.client.Lookup(ctx, q.name)
		if err != nil {
			return nil, err
		}
		for _, a := range l.Addrs {
			o.addrs = append(o.addrs, a.String())
		}
		slices.Sort(o.addrs)
		o.note = l.Status
		if !l.Found() {
			o.outcome = suite.Unresolved
			return o, nil
		}
		if q.network == "" {
			o.outcome = suite.Resolves
			return o, nil
		}
		addrs = l.Addrs
	}
	if q.request != nil {
		return o, q.sendAll(ctx, o)
	}
	return o, q.connectAll(ctx, addrs, o)
}

// parallel calls try several times at once.
func parallel(n int, try func() error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = try() })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// outcomes are those of connections.
var outcomes = map[world.Outcome]suite.Outcome{
	world.Connected: suite.Connects, world.Refused: suite.Refused, world.Dropped: suite.Dropped,
}

// connectAll connects to each address.
func (q *question) connectAll(ctx context.Context, addrs []netip.Addr, o *observed) error {
	connect := q.client.Connect
	if q.tries > 1 { // each try is to be one choice of an endpoint
		connect = q.client.Try
	}
	servers := make(map[string]bool)
	all := make(map[suite.Outcome]bool)
	for i, addr := range addrs {
		var mu sync.Mutex
		here := make(map[suite.Outcome]bool)
		err := parallel(q.tries, func() error {
			c, err := connect(ctx, q.network, netip.AddrPortFrom(addr, uint16(q.port)))
			mu.Lock()
			defer mu.Unlock()
			here[outcomes[c.Outcome]] = true
			if c.Server != "" {
				servers[c.Server] = true
			}
			return err
		})
		if err != nil {
			return err
		}
		maps.Copy(all, here)
		if i == 0 && len(here) == 1 {
			o.outcome = slices.Collect(maps.Keys(here))[0]
		}
	}
	switch {
	case all[suite.Refused] && all[suite.Dropped]:
		o.depends = true
	case all[suite.Connects] && all[suite.Dropped]:
		o.outcome, o.note = "", "partly dropped"
	case all[suite.Connects]:
		o.outcome = suite.Connects
	}
	o.servers = slices.Sorted(maps.Keys(servers))
	return nil
}

// host returns the host of the URL.
func (q *question) host() string {
	u, err := url.Parse(q.request.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// sendAll sends requests.
func (q *question) sendAll(ctx context.Context, o *observed) error {
	var mu sync.Mutex
	seen := map[string]map[string]bool{"outcome": {}, "server": {}, "rule": {}, "service": {}, "status": {}, "location": {}}
	err := parallel(q.tries, func() error {
		r, err := q.client.Do(ctx, *q.request)
		mu.Lock()
		defer mu.Unlock()
		for name, value := range map[string]string{
			"server": r.Backend, "rule": r.Header.Get(ruleField), "service": r.Header.Get(serviceField),
			"location": r.Header.Get("Location"),
		} {
			if value != "" {
				seen[name][value] = true
			}
		}
		switch {
		case r.Lookup != nil && !r.Lookup.Found():
			o.outcome = suite.Unresolved
		case r.Outcome != world.Connected:
			o.outcome = outcomes[r.Outcome]
		case r.Certificate != nil && r.Certificate.VerifyHostname(q.host()) != nil:
			o.outcome, o.note = "", "the certificate is for another host"
		case r.Status == 0:
			o.outcome, o.note = "", "no response: "+r.Why
		case r.Backend != "":
			o.outcome = suite.Backend
		case r.Status >= 300 && r.Status < 400:
			o.outcome, o.location = suite.Redirect, r.Header.Get("Location")
		default:
			o.outcome, o.status = suite.Status, r.Status
		}
		seen["outcome"][fmt.Sprint(o.outcome, r.Status)] = true
		return err
	})
	o.servers, o.rules = slices.Sorted(maps.Keys(seen["server"])), slices.Sorted(maps.Keys(seen["rule"]))
	o.services = slices.Sorted(maps.Keys(seen["service"]))
	if len(seen["outcome"]) > 1 {
		all := slices.Sorted(maps.Keys(seen["outcome"]))
		o.outcome, o.note = "", fmt.Sprintf("several: %v", all)
		o.depends = slices.Equal(all, []string{string(suite.Dropped) + "0", string(suite.Refused) + "0"})
	}
	if q.kind == kindDirect && o.outcome == suite.Backend {
		o.outcome = suite.Connects // no gateway is in the way
	}
	return err
}

// expectation is what an assertion expects.
type expectation struct {
	outcome suite.Outcome
	values  []string
	status  int
}

// MarshalYAML implements yaml.Marshaler.
func (e expectation) MarshalYAML() (any, error) {
	switch {
	case e.outcome == suite.Status:
		return map[string]int{string(suite.Status): e.status}, nil
	case e.outcome == suite.Redirect:
		return map[string]string{string(suite.Redirect): e.values[0]}, nil
	case len(e.values) > 0:
		return map[string][]string{string(e.outcome): e.values}, nil
	}
	return string(e.outcome), nil
}

// holds reports whether it is what was observed. Of Services behind a gateway only their own Pods are known, unless
// their routes say more.
func (e expectation) holds(o *observed) bool {
	if e.outcome != o.outcome {
		return false
	}
	switch {
	case e.outcome == suite.Status:
		return e.status == o.status
	case len(e.values) == 0:
		return true
	case e.outcome == suite.Resolves:
		return slices.Equal(e.values, o.addrs)
	case e.outcome == suite.Connects:
		return within(o.servers, e.values)
	case e.outcome == suite.Backend:
		return within(o.services, e.values)
	}
	return e.values[0] == o.location
}

// within reports whether there are some, and all are among others.
func within(some, others []string) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(others, s) })
}

// assertion is an expectation of a question, and whether it holds by what was observed.
type assertion struct {
	Expect expectation `yaml:"expect"`
	By     string      `yaml:"by,omitempty"`
	holds  bool
}

// assertions returns one that holds, if there is one for what was observed, and one that is drawn.
func (c *randomCluster) assertions(q *question, o *observed) (all []assertion) {
	if o.depends {
		return nil
	}
	if o.outcome != "" {
		a := assertion{Expect: expectation{outcome: o.outcome, status: o.status}, holds: true}
		switch o.outcome {
		case suite.Resolves:
			a.Expect.values = o.addrs
		case suite.Connects:
			if !slices.Contains(o.servers, world.OutsideName) {
				a.Expect.values = o.servers
			}
		case suite.Backend:
			a.Expect.values = o.services
			if len(o.rules) == 1 {
				a.By = o.rules[0]
			}
		case suite.Redirect:
			a.Expect.values = []string{o.location}
		}
		all = append(all, a)
	}
	other := assertion{Expect: c.other(q)}
	other.holds = other.Expect.holds(o)
	return append(all, other)
}

// other draws an expectation that need not hold.
func (c *randomCluster) other(q *question) (e expectation) {
	switch q.kind {
	case kindLookup:
		e.outcome = pick(c, suite.Resolves, suite.Unresolved)
	case kindURL:
		e.outcome = pick(c, suite.Backend, suite.Dropped, suite.Status)
		e.status = pick(c, http.StatusNotFound, http.StatusInternalServerError, http.StatusServiceUnavailable)
	default:
		e.outcome = pick(c, suite.Connects, suite.Refused, suite.Dropped)
		if e.outcome == suite.Connects && c.chance(2) {
			e.values = []string{pick(c, c.pods...).String()}
		}
	}
	return e
}
