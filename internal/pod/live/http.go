package live

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
)

// response is what came back to a request.
type response struct {
	path.Response
	// reason is that of our gateway's own answer; empty if it is that of a server behind it, or of another gateway.
	reason string
	body   []byte // its beginning
	err    error  // why there is none
}

// The bounds of a response: what is read at most, and how much of its body.
const maxResponse, maxBody = 64 << 10, 1 << 10

// request sends the request on a connection, and reads the beginning of the response.
func (c *comparer) request(ctx context.Context, conn net.Conn, at netip.AddrPort) *response {
	begin := time.Now()
	r := c.roundTrip(ctx, conn)
	c.record(fmt.Sprintf("%s %s at %s", c.Message.Method, c.Message.URL(), at), r.String(), time.Since(begin))
	return r
}

func (c *comparer) roundTrip(ctx context.Context, conn net.Conn) *response {
	m := c.Message
	sent := &http.Request{
		Method: m.Method, URL: &url.URL{Opaque: m.Path, RawQuery: m.Query}, Host: hostOf(m), Header: make(http.Header),
		Close: true,
	}
	sent.Header.Set("User-Agent", "portolan-explain")
	maps.Copy(sent.Header, m.Header)
	if err := sent.WithContext(ctx).Write(conn); err != nil {
		return &response{err: err}
	}
	got, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxResponse)), sent)
	if err != nil {
		return &response{err: err}
	}
	defer got.Body.Close()
	r := &response{Response: path.Response{Status: got.StatusCode}}
	for name, values := range got.Header {
		for _, v := range values {
			r.Header = append(r.Header, name+": "+v)
		}
	}
	slices.Sort(r.Header)
	r.body, _ = io.ReadAll(io.LimitReader(got.Body, maxBody)) // what there is of it
	r.Location = got.Header.Get("Location")
	r.reason = ownReason(got, r.body)
	return r
}

// hostOf returns the field Host of a request.
func hostOf(m *request.Message) string {
	usual := map[string]uint16{"http": 80, "https": 443}[m.Scheme]
	switch {
	case m.Port != usual:
		return net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port)))
	case strings.Contains(m.Host, ":"):
		return "[" + m.Host + "]"
	}
	return m.Host
}

// ownReason returns why a gateway of Portolan answers itself, as its body says; empty if the response is another's.
func ownReason(r *http.Response, body []byte) string {
	text, ok := bytes.CutPrefix(body, []byte(http.StatusText(r.StatusCode)+": "))
	if !ok || r.StatusCode < 300 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	line, rest, ok := bytes.Cut(text, []byte("\n"))
	if !ok || len(rest) > 0 {
		return ""
	}
	return string(line)
}

// status says which status came, or why none did.
func (r *response) status() string {
	if r.err != nil {
		return "no response: " + r.err.Error()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status)))
}

// String says what came back.
func (r *response) String() string {
	text := r.status()
	switch {
	case r.reason != "":
		text += ", by the gateway itself: " + r.reason
	case r.Location != "":
		text += " to " + r.Location
	}
	if r.From != "" {
		text += ", from " + r.From
	}
	return text
}

// byGateway reports whether a response is what the gateway itself answers, as far as it says so: a response to HEAD
// does not.
func (c *comparer) byGateway(r *response) bool {
	return r.err == nil && (r.reason != "" || c.Message.Method == http.MethodHead && r.Status >= 400)
}

// answers compares the layers of the route and of its backends with a response that came from an address.
func (c *comparer) answers(r *response, from netip.Addr) {
	if r.err == nil {
		c.response = &r.Response
	}
	if c.e.Request == nil {
		return // what answers is a program that the model does not know
	}
	a := answerAt(c.e.Request, from)
	if a == nil {
		c.notCompared("by the model the request comes to no gateway")
		return
	}
	r.From = podOf(a, r)
	route, backend := c.e.Step(path.Route), c.e.Step(path.Backend)
	if route != nil && route.Live == nil {
		route.Live = c.route(a, r, backend != nil)
	}
	if backend != nil && backend.Live == nil {
		backend.Live = c.backend(a, r, backend)
	}
}

// answerAt returns the answer of the gateway at an address, or of any.
func answerAt(e *request.Explanation, at netip.Addr) *request.Answer {
	for i := range e.Answers {
		if e.Answers[i].Address == at.String() {
			return &e.Answers[i]
		}
	}
	return e.Answer()
}

// podOf returns the Pod of an endpoint whose name a response has in a field or in the beginning of its body; empty if
// it has none.
func podOf(a *request.Answer, r *response) string {
	text := strings.Join(r.Header, "\n") + "\n" + string(r.body)
	for i := range a.Backends {
		for _, e := range a.Backends[i].Endpoints {
			_, name, ok := strings.Cut(e.Pod, "/")
			if ok && strings.Contains(text, name) {
				return "Pod " + e.Pod
			}
		}
	}
	return ""
}

// atBackend are the reasons of answers of a gateway about backends; those of others are about routes.
var atBackend = []table.Reason{
	table.NoBackend, table.NoEndpoint, table.Unreachable, table.RetryLimit, table.Invalid, table.BrokenOff, table.TimedOut,
}

// route compares the layer of the route. behind: the rule has a backend, whose layer is compared with the answer.
func (c *comparer) route(a *request.Answer, r *response, behind bool) *path.Live {
	own := c.byGateway(r)
	switch {
	case r.err != nil:
		return unclear("", r.String(), "there is no response")
	case a.Location != "":
		expected := fmt.Sprintf("%d to %s", a.Status, a.Location)
		return compared(expected, r.String(), r.Status == a.Status && r.Location == a.Location, staleGateway)
	case own && len(a.Demands) > 0 && slices.Contains(gatewayStatus, r.Status):
		return compared(a.Taken().Name+" takes it, and has demands", r.String(), true)
	case behind && own && c.Message.Method == http.MethodHead:
		return unclear("", r.String(), "a response to HEAD does not say why")
	case behind:
		agrees := !own || slices.Contains(atBackend, table.Reason(r.reason)) || isOf(a, r)
		return compared(a.Taken().Name+" takes it", r.String(), agrees, staleGateway)
	}
	expected := fmt.Sprintf("%d by the gateway itself: %s", a.Status, a.Reason)
	// The server of HTTP refuses some requests before they have a route, without saying why.
	own = own || slices.Contains([]int{http.StatusBadRequest, http.StatusMethodNotAllowed}, r.Status)
	return compared(expected, r.String(), own && r.Status == a.Status, staleGateway)
}

// isOf reports whether a response is what the gateway says of an invalid backend.
func isOf(a *request.Answer, r *response) bool {
	return r.Status == a.Status && a.Status != 0 || slices.ContainsFunc(a.Backends, func(b request.Backend) bool {
		return b.Status != 0 && b.Status == r.Status
	})
}

// backend compares the layer of the backends.
func (c *comparer) backend(a *request.Answer, r *response, s *path.Step) *path.Live {
	if r.err != nil {
		return unclear("", r.String(), "there is no response")
	}
	may, serves := c.mayAnswer(a, s)
	own := c.byGateway(r)
	var words []string
	for _, status := range may {
		words = append(words, strconv.Itoa(status)+" by the gateway itself")
	}
	if serves {
		words = append(words, "a backend answers")
	}
	expected := strings.Join(words, ", or ")
	switch {
	case own && slices.Contains(gatewayStatus, r.Status) && len(a.Demands) > 0:
		return unclear(expected, r.String(), "the gateway demands something of the client first")
	case !own && serves && len(may) > 0:
		return unclear(expected, r.String(), "one request shows one of the backends")
	case own:
		return compared(expected, r.String(), slices.Contains(may, r.Status), c.why(r))
	}
	return compared(expected, r.String(), serves, staleGateway)
}

// mayAnswer returns the statuses of the gateway itself that the request may get, and whether a backend may serve it.
func (c *comparer) mayAnswer(a *request.Answer, s *path.Step) (may []int, serves bool) {
	if a.Status != 0 {
		return []int{a.Status}, false
	}
	denied, allowed := 0, 0
	for _, connection := range c.e.Backends {
		for i := range connection.Attempts {
			for k := range connection.Attempts[i].Endpoints {
				if connection.Attempts[i].Endpoints[k].Denied() {
					denied++
				} else {
					allowed++
				}
			}
		}
	}
	for i := range a.Backends {
		b := &a.Backends[i]
		switch {
		case b.Weight == 0:
		case b.Status != 0:
			may = append(may, b.Status)
		default:
			serves = denied == 0 || allowed > 0
		}
	}
	if denied > 0 {
		may = append(may, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	}
	if s.State == path.OK {
		serves = true
	}
	return may, serves
}

// why returns the likely cause of an answer of the gateway itself, where a backend is expected to answer.
func (c *comparer) why(r *response) string {
	switch table.Reason(r.reason) {
	case table.Unreachable, table.TimedOut:
		return "no program listens at the endpoints, or a firewall is between them and the gateway"
	case table.Invalid, table.BrokenOff:
		return "what listens at the endpoint does not speak HTTP as the gateway does"
	}
	return staleGateway
}
