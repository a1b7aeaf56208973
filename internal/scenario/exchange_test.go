package scenario_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// exchange is a request of a client through the proxy, what endpoints get, and what the client gets. In a scenario
// an empty line is between two of them.
//
//	> METHOD URL               the client sends
//	> NAME: VALUE
//	| NS/SERVICE:PORT METHOD PATH    the endpoint of a Service gets; once for each endpoint that gets it
//	| NAME: VALUE              fields as they are sent on
//	| no NAME                  and some that are not
//	< STATUS                   the client gets
//	< NAME: VALUE
//	< no NAME
//	< because REASON           why the gateway answered itself
//
// "> N times" before the first line sends a request N times; then "| NS/SERVICE:PORT P %" and "< STATUS P %" are the
// shares of the requests. Endpoints answer with status 200, or with that of a field Answer-Status, and with the fields
// of the request whose names begin with "Answer-"; with a field Never they do not answer.
type exchange struct {
	name   string // a field of the request, by which the endpoints know it
	times  int
	method string
	url    *url.URL
	fields []string // "NAME: VALUE"
	gets   []received
	status []share
	want   []string // of the response
	reason string
}

// received is what an endpoint gets.
type received struct {
	share
	method, target string
	want           []string
}

// share is a part of the requests, in percent; 0 for all.
type share struct {
	of      string
	percent float64
}

// parseExchanges parses the exchanges of a scenario.
func parseExchanges(lines []string) (all []exchange, err error) {
	for len(lines) > 0 {
		end := slices.Index(lines, "")
		if end < 0 {
			end = len(lines)
		}
		e := exchange{times: 1}
		for _, line := range lines[:end] {
			if err := e.parse(line); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		if e.url == nil || len(e.status) == 0 {
			return nil, fmt.Errorf("%q has no request or no status", lines[:end])
		}
		all, lines = append(all, e), lines[min(end+1, len(lines)):]
	}
	return all, nil
}

func (e *exchange) parse(line string) (err error) {
	direction, text, _ := strings.Cut(line, " ")
	words := strings.Fields(text)
	if len(words) == 0 {
		return errors.New("it is empty")
	}
	isField := words[0] == "no" || strings.HasSuffix(words[0], ":")
	switch {
	case direction == ">" && len(words) == 2 && words[1] == "times":
		e.times, err = strconv.Atoi(words[0])
	case direction == ">" && e.url == nil && len(words) == 2:
		e.method = words[0]
		e.url, err = url.Parse(words[1])
	case direction == ">" && isField:
		e.fields = append(e.fields, text)
	case direction == "|" && isField && len(e.gets) > 0:
		last := &e.gets[len(e.gets)-1]
		last.want = append(last.want, text)
	case direction == "|" && len(words) == 3 && words[2] == "%":
		made := received{share: share{of: words[0]}}
		made.percent, err = strconv.ParseFloat(words[1], 64)
		e.gets = append(e.gets, made)
	case direction == "|" && len(words) == 3:
		e.gets = append(e.gets, received{share: share{of: words[0]}, method: words[1], target: words[2]})
	case direction == "<" && words[0] == "because":
		e.reason = strings.TrimPrefix(text, "because ")
	case direction == "<" && isField && len(e.status) > 0:
		e.want = append(e.want, text)
	case direction == "<" && len(words) == 3 && words[2] == "%":
		made := share{of: words[0]}
		made.percent, err = strconv.ParseFloat(words[1], 64)
		e.status = append(e.status, made)
	case direction == "<" && len(words) == 1:
		e.status = append(e.status, share{of: words[0]})
	default:
		return errors.New("it is none of the lines of an exchange")
	}
	return err
}

// gatewayProxy is a proxy, with an endpoint for each Upstream that has some.
type gatewayProxy struct {
	t       *testing.T
	client  *http.Transport
	mu      sync.Mutex
	got     map[string][]gotten     // by exchange
	reasons map[string]table.Reason // why the gateway answered itself, by exchange
}

// gotten is what an endpoint got.
type gotten struct {
	upstream, method, target string
	header                   http.Header
}

// exchange has a proxy serve the exchanges of a scenario.
func (r *gatewayRun) exchange(t *testing.T, all []exchange) {
	t.Helper()
	g := &gatewayProxy{t: t, got: make(map[string][]gotten), reasons: make(map[string]table.Reason)}
	addrs := make(map[table.Upstream][]netip.AddrPort)
	for up, compiled := range r.endpoints {
		if addrs[up] = []netip.AddrPort{}; len(compiled) > 0 {
			addrs[up] = []netip.AddrPort{g.endpoint(nameOf(up))}
		}
	}
	pools := new(balance.Set[table.Upstream])
	pools.Update(addrs)
	p := proxy.New(proxy.Config{Endpoints: pools, Done: func(r *proxy.Record) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reasons[r.Request.Header.Get("Exchange")] = r.Reason
	}})
	p.SetTable(r.table)
	t.Cleanup(p.Close)
	g.client = g.dialing(p)
	for i := range all {
		all[i].name = strconv.Itoa(i)
		if all[i].times > 1 {
			g.checkShares(&all[i])
		} else {
			g.check(&all[i])
		}
	}
}

// dialing returns a client that reaches the sockets of a proxy, whatever the host.
func (g *gatewayProxy) dialing(p *proxy.Proxy) *http.Transport {
	listening := make(map[string]string) // the addresses of ports
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if listening[port] == "" { // exchanges come one after the other
			number, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return nil, err
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			s := &h1.Server{Handler: p.At(table.Socket{Port: uint16(number)})}
			g.t.Cleanup(func() { s.Close() })
			go func() { _ = s.Serve(l) }()
			listening[port] = l.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, listening[port])
	}
	client := &http.Transport{DialContext: dial, DisableCompression: true}
	g.t.Cleanup(client.CloseIdleConnections)
	return client
}

// endpoint starts the endpoint of an Upstream.
func (g *gatewayProxy) endpoint(name string) netip.AddrPort {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Clone()
		header.Set("Host", r.Host)
		of := r.Header.Get("Exchange")
		g.mu.Lock()
		g.got[of] = append(g.got[of], gotten{name, r.Method, r.RequestURI, header})
		g.mu.Unlock()
		if r.Header.Get("Never") != "" {
			<-r.Context().Done()
			return
		}
		status := 200
		for name, values := range r.Header {
			if name == "Answer-Status" {
				status, _ = strconv.Atoi(values[0])
			} else if field, ok := strings.CutPrefix(name, "Answer-"); ok {
				w.Header()[field] = values
			}
		}
		w.WriteHeader(status)
	}))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.Config.Protocols = protocols
	s.Start()
	g.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// send sends the request of an exchange, and returns the response.
func (g *gatewayProxy) send(e *exchange) *http.Response {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), e.method, e.url.String(), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Exchange", e.name)
	for _, f := range e.fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	res, err := g.client.RoundTrip(r)
	if err != nil {
		g.t.Fatalf("%s %s: %v", e.method, e.url, err)
	}
	_, err = io.Copy(io.Discard, bufio.NewReader(res.Body))
	if err = cmp.Or(err, res.Body.Close()); err != nil {
		g.t.Errorf("%s %s: %v", e.method, e.url, err)
	}
	return res
}

// await waits until a condition holds, or a minute is over: what the gateway does may come after the response, such as
// the copies of mirrored requests.
func (g *gatewayProxy) await(condition func() bool) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		holds := condition()
		g.mu.Unlock()
		if holds || time.Now().After(end) {
			return
		}
	}
}

// gotten waits until endpoints got n requests of an exchange, and returns what they got.
func (g *gatewayProxy) gotten(e *exchange, n int) []gotten {
	g.await(func() bool { return len(g.got[e.name]) >= n })
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.got[e.name])
}

// reason waits for the reason of an exchange, and returns it.
func (g *gatewayProxy) reason(e *exchange) string {
	g.await(func() bool { return g.reasons[e.name] != "" })
	g.mu.Lock()
	defer g.mu.Unlock()
	return string(g.reasons[e.name])
}

// check sends a request, and compares what came of it.
func (g *gatewayProxy) check(e *exchange) {
	g.t.Helper()
	res := g.send(e)
	call := fmt.Sprintf("%s %s %q", e.method, e.url, e.fields)
	if got := strconv.Itoa(res.StatusCode); got != e.status[0].of {
		g.t.Errorf("%s: status %s, want %s", call, got, e.status[0].of)
	}
	if e.reason != "" {
		if got := g.reason(e); got != e.reason {
			g.t.Errorf("%s: answered because %s, want %s", call, got, e.reason)
		}
	}
	for _, wrong := range wrongFields(res.Header, e.want) {
		g.t.Errorf("%s: the client gets %s", call, wrong)
	}
	all := g.gotten(e, len(e.gets))
	for _, want := range e.gets {
		i := slices.IndexFunc(all, func(of gotten) bool { return of.upstream == want.of })
		if i < 0 {
			g.t.Errorf("%s: %s gets nothing", call, want.of)
			continue
		}
		got := all[i]
		all = slices.Delete(all, i, i+1)
		if got.method != want.method || got.target != want.target {
			g.t.Errorf("%s: %s gets %s %s, want %s %s", call, want.of, got.method, got.target, want.method, want.target)
		}
		for _, wrong := range wrongFields(got.header, want.want) {
			g.t.Errorf("%s: %s gets %s", call, want.of, wrong)
		}
	}
	for _, more := range all {
		g.t.Errorf("%s: %s gets %s %s, want nothing", call, more.upstream, more.method, more.target)
	}
}

// wrongFields compares fields "NAME: VALUE" and "no NAME" with those of a head.
func wrongFields(header http.Header, want []string) (wrong []string) {
	for _, f := range want {
		name, value, _ := strings.Cut(f, ": ")
		if absent, ok := strings.CutPrefix(f, "no "); ok {
			name, value = absent, ""
		}
		if got := strings.Join(header.Values(name), ", "); got != value {
			wrong = append(wrong, fmt.Sprintf("%s: %q, want %q", name, got, value))
		}
	}
	return wrong
}

// checkShares sends a request many times, and compares the shares of what came of it. What differs by more than six
// standard deviations is wrong.
func (g *gatewayProxy) checkShares(e *exchange) {
	g.t.Helper()
	statuses := make(map[string]int)
	for range e.times {
		res := g.send(e)
		statuses[strconv.Itoa(res.StatusCode)]++
	}
	least, deviations := 0, func(s share) (want, off float64) {
		p := s.percent / 100
		return p * float64(e.times), 6 * math.Sqrt(p*(1-p)*float64(e.times))
	}
	for _, s := range e.gets {
		want, off := deviations(s.share)
		least += int(want - off)
	}
	upstreams := make(map[string]int)
	for _, of := range g.gotten(e, least) {
		upstreams[of.upstream]++
	}
	compare := func(got map[string]int, s share) {
		want, off := deviations(s)
		if n := float64(got[s.of]); math.Abs(n-want) > off {
			g.t.Errorf("%s %s: %v of %d are %s, want %v %%", e.method, e.url, n, e.times, s.of, s.percent)
		}
		delete(got, s.of)
	}
	for _, s := range e.gets {
		compare(upstreams, s.share)
	}
	for _, s := range e.status {
		compare(statuses, s)
	}
	if len(upstreams)+len(statuses) > 0 {
		g.t.Errorf("%s %s: also %v and %v", e.method, e.url, upstreams, statuses)
	}
}
