package app

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/pod/view"
)

const (
	// mostText is the maximum length of what is searched for, in octets.
	mostText = 256
	// mostFound is the maximum number of things that are found, and usualFound the default.
	mostFound, usualFound = 100, 20
	// mostParameter is the maximum length of a parameter of explain, in octets, and mostHeaders the maximum number of
	// header fields.
	mostParameter = 4 << 10
	mostHeaders   = 64
	// mostWidth is the maximum width of a text, in columns.
	mostWidth = 1000
)

// view calls compute with the model.
func (p *Page) view(compute func(*view.Model)) error {
	i, err := p.current()
	if err != nil {
		return err
	}
	i.store.View(func(v *cluster.View) {
		w := i.newWalker(v, NodeSettings{})
		m := &view.Model{
			View: v, Linter: w.world.Linter, Ask: i.records, Whole: p.cfg.Whole, Cure: p.cure(),
			Found:   func() []lint.Finding { return p.check(i, w.world.Linter) },
			Gateway: sync.OnceValue(func() *request.World { return request.NewWorld(v, i.gateway(), i.loaded.Partial...) }),
			ResolvConf: func(s *dnsconfig.Subject) dnsconfig.Resolution {
				return dnsconfig.Resolve(s.Settings(), i.node(v, s, NodeSettings{}))
			},
		}
		compute(m)
	})
	return nil
}

// records returns the records that the cluster's DNS answers with for a name; none for names outside the cluster.
func (i *Inspector) records(name string, t dnswire.Type) []dnswire.Record {
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: t})
	if err != nil {
		return nil
	}
	client := respond.Client{Transport: respond.TCP} // answers are not truncated
	wire, later := i.dns.NewWorker(0).Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
	if later != nil || len(wire) == 0 {
		return nil
	}
	m, err := dnswire.ParseMessage(wire)
	if err != nil {
		return nil
	}
	return m.Answer
}

func (p *Page) overview(*http.Request) (any, error) {
	settings := p.configured()
	made := view.Overview{
		Process: view.Process{Version: p.cfg.Version, Command: p.cfg.Command, Parts: []view.Part{}},
		Sources: []view.Source{}, Agents: []view.Agent{}, Upstreams: []view.Upstream{}, Counts: map[string]int{},
		Reads: settings.Admin.Page,
	}
	if parts := p.parts.Load(); parts != nil {
		made.Process.Parts = append(made.Process.Parts, (*parts)()...)
	}
	if p.cfg.Sources != nil {
		made.Sources = append(made.Sources, p.cfg.Sources()...)
	}
	if p.cfg.Upstreams != nil {
		made.Upstreams = append(made.Upstreams, p.cfg.Upstreams()...)
	}
	if p.cfg.Store != nil {
		p.cfg.Store.View(func(v *cluster.View) {
			(&view.Model{View: v, Whole: p.cfg.Whole, Cure: p.cure()}).Overview(&made)
		})
		for i := range made.Agents {
			a := &made.Agents[i]
			a.Unknown = a.Unknown || !a.Ready && settings.Manifests != "" // which rarely have the conditions of nodes
		}
	}
	return made, nil
}

func (p *Page) search(r *http.Request) (any, error) {
	q := r.URL.Query()
	text := q.Get("q")
	if len(text) > mostText {
		return nil, refuse(http.StatusBadRequest, "what is searched for is longer than %d octets", mostText)
	}
	limit, err := limitOf(q)
	if err != nil {
		return nil, err
	}
	var made view.Found
	err = p.view(func(m *view.Model) { made = m.Search(text, limit) })
	return made, err
}

// limitOf returns how many things are to be listed at most.
func limitOf(q url.Values) (limit int, err error) {
	given := q.Get("limit")
	if given == "" {
		return usualFound, nil
	}
	if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > mostFound {
		return 0, refuse(http.StatusBadRequest, "limit is no number from 1 to %d", mostFound)
	}
	return limit, nil
}

// keyOf returns the object of a path.
func keyOf(r *http.Request) cluster.Key {
	return cluster.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

func (p *Page) service(r *http.Request) (any, error) {
	var made *view.Service
	err := p.view(func(m *view.Model) { made = m.Service(keyOf(r)) })
	if err == nil && made == nil {
		err = p.absent(cluster.KindService, keyOf(r))
	}
	if made != nil {
		made.Failures = p.failures(made.Involved)
	}
	return made, err
}

func (p *Page) pod(r *http.Request) (any, error) {
	var made *view.Pod
	err := p.view(func(m *view.Model) { made = m.Pod(keyOf(r)) })
	if err == nil && made == nil {
		err = p.absent(cluster.KindPod, keyOf(r))
	}
	if made != nil {
		made.Failures = p.failures(made.Involved)
	}
	return made, err
}

// failures returns the last failures; none if they are not known. Other parts of the process name the Pods of clients,
// and may wait for the model: it is not called within a view of it.
func (p *Page) failures(of view.Involved) []any {
	if p.cfg.Failures == nil {
		return []any{}
	}
	return append([]any{}, p.cfg.Failures(of)...)
}

// policy shows a NetworkPolicy or, of a path without a namespace, a ClusterNetworkPolicy.
func (p *Page) policy(r *http.Request) (any, error) {
	kind := cluster.KindNetworkPolicy
	if keyOf(r).Namespace == "" {
		kind = cluster.KindClusterNetworkPolicy
	}
	var made *view.NetworkPolicy
	err := p.view(func(m *view.Model) { made = m.NetworkPolicy(keyOf(r)) })
	if err == nil && made == nil {
		err = p.absent(kind, keyOf(r))
	}
	return made, err
}

const (
	// freshTime is how long findings are kept whatever changes: the model does not change while they are computed, which
	// takes 150 ms for 10,000 Services.
	freshTime = time.Second
	// keptTime is how long findings are kept if nothing changes. Certificates expire all the same.
	keptTime = time.Minute
)

// check returns what an Inspector finds in all objects, now or a short time ago. The caller has the turn.
func (p *Page) check(i *Inspector, l *lint.Linter) []lint.Finding {
	version, age := p.cfg.Store.Version(), time.Since(p.found.at)
	if p.found.by == i && (age < freshTime || age < keptTime && p.found.version == version) {
		return p.found.all
	}
	p.found = found{l.CheckAll(), i, version, time.Now()}
	return p.found.all
}

func (p *Page) findings(r *http.Request) (any, error) {
	limit, err := limitOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	var made *view.Findings
	err = p.view(func(m *view.Model) { made = m.Findings(limit) })
	return made, err
}

// gateways shows Gateways and routes. With the parameter route, NAMESPACE/NAME, it shows the routes of that name only:
// the list of all may be cut before them.
func (p *Page) gateways(r *http.Request) (any, error) {
	made, route := (*view.Gateways)(nil), r.URL.Query().Get("route")
	if route == "" {
		err := p.view(func(m *view.Model) { made = m.Gateways() })
		return made, err
	}
	namespace, name, _ := strings.Cut(route, "/")
	if namespace == "" || name == "" {
		return nil, refuse(http.StatusBadRequest, "route is not NAMESPACE/NAME")
	}
	err := p.view(func(m *view.Model) { made = m.GatewaysOf(cluster.Key{Namespace: namespace, Name: name}) })
	return made, err
}

// absent returns why there is no object: it does not exist, or its kind is not read.
func (p *Page) absent(k cluster.Kind, key cluster.Key) (err error) {
	p.cfg.Store.View(func(v *cluster.View) {
		if !v.Loaded(k) {
			err = refuse(http.StatusNotImplemented, "%s are not read here; %s", k.Plural(), p.cure())
			return
		}
		err = refuse(http.StatusNotFound, "there is no %s %s", k, explain.Plain(key.String()))
	})
	return err
}

// asked returns the question of the parameters of a request.
func asked(q url.Values) (a Asked, style explain.Style, err error) {
	for name, values := range q {
		for _, v := range values {
			if len(v) > mostParameter {
				return a, style, refuse(http.StatusBadRequest, "%.20q is longer than %d octets", name, mostParameter)
			}
		}
	}
	a = Asked{
		Target: q.Get("target"), From: q.Get("from"), To: q.Get("to"), Node: q.Get("node"), Method: q.Get("method"),
		Headers: q["header"], Type: q.Get("type"), Libc: q.Get("libc"), Namespace: q.Get("namespace"),
	}
	a.Headers = append([]string{}, a.Headers...)
	if len(a.Headers) > mostHeaders {
		return a, style, refuse(http.StatusBadRequest, "there are more than %d headers", mostHeaders)
	}
	if len(a.Headers) == 1 && a.Headers[0] == "" { // an empty field of a form
		a.Headers = nil
	}
	if width := q.Get("width"); width != "" {
		if style.Width, err = strconv.Atoi(width); err != nil || style.Width < 1 || style.Width > mostWidth {
			return a, style, refuse(http.StatusBadRequest, "width is no number from 1 to %d", mostWidth)
		}
	}
	style.Color = q.Get("color") == "true"
	return a, style, nil
}

// ExplainPath is the path of explanations.
const ExplainPath = "/api/v1/explain"

// ExitField is the header field of a response with the exit status that the command has.
const ExitField = "Portolan-Exit-Status"

// explain explains what the parameters of a request ask for. The parameter output is text or json for exactly what the
// command prints; without it, the JSON has the text as well.
func (p *Page) explain(r *http.Request) (*answer, error) {
	q := r.URL.Query()
	output := q.Get("output")
	if output != "" && output != "text" && output != "json" {
		return nil, refuse(http.StatusBadRequest, "output is not text or json")
	}
	a, style, err := asked(q)
	if err != nil {
		return nil, err
	}
	told, err := p.tell(r, a)
	if err != nil {
		return nil, err
	}
	text, err := told.WriteText(style)
	if err != nil {
		return nil, err
	}
	made := &answer{contentType: "application/json", exit: told.Exit()}
	switch output {
	case "text":
		made.contentType = "text/plain; charset=utf-8"
		_, err = made.body.Write([]byte(text))
		return made, err
	case "json":
		return made, made.encode(told.Explanation, "  ")
	}
	return made, made.encode(struct {
		*path.Explanation
		Text string `json:"text"`
		Exit int    `json:"exit"`
	}{told.Explanation, text, made.exit}, "")
}

// tell explains what is asked for, if enough is read for that.
func (p *Page) tell(r *http.Request, a Asked) (*Told, error) {
	i, err := p.current()
	switch {
	case err != nil:
		return nil, err
	case !p.cfg.Whole:
		return nil, refuse(http.StatusNotImplemented, "explanations need all fields of all objects, which this process does "+
			"not read; %s", p.cure())
	}
	if missing := i.missing(&a); len(missing) > 0 {
		var names []string
		for _, k := range missing {
			names = append(names, k.Plural())
		}
		return nil, refuse(http.StatusServiceUnavailable, "%s are not read yet, or the account may not read them",
			strings.Join(names, ", "))
	}
	told, err := i.Tell(r.Context(), a)
	if err != nil {
		err = refuse(http.StatusBadRequest, "%s", explain.Plain(err.Error()))
	}
	return told, err
}
