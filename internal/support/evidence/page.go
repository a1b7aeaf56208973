package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/support/httpserver"
)

// Paths of the pages on the admin server.
const (
	TailPath = "/api/v1/evidence"
	TopPath  = "/api/v1/top"
)

// Parameters of the pages. ParamReason is a list, separated by commas.
const (
	ParamFollow  = "follow" // the tail goes on with further events; its value does not matter
	ParamKind    = "kind"
	ParamReason  = "reason"
	ParamClient  = "client"  // an address, a prefix, or a Pod as NAMESPACE/NAME
	ParamSubject = "subject" // a part of the subject, in any case
	ParamBy      = "by"
	ParamLimit   = "limit" // the number of items of top, or of the last events before those to follow
)

// The numbers of items of top, and the greatest of what a client may ask for.
const (
	defaultLimit = 20
	maxLimit     = MaxSize
)

// Pages returns the pages by path: TailPath responds with events, one JSON object a line
// (https://jsonlines.org) or as server-sent events, and TopPath with a Top.
func (r *Ring) Pages() map[string]http.Handler {
	if r == nil {
		return nil
	}
	return map[string]http.Handler{TailPath: http.HandlerFunc(r.serveTail), TopPath: http.HandlerFunc(r.serveTop)}
}

// wire is an Event as JSON.
type wire struct {
	Time    string `json:"time"`
	Kind    string `json:"kind"`
	Reason  string `json:"reason"`
	Client  string `json:"client,omitempty"`
	Pod     string `json:"clientPod,omitempty"`
	Subject string `json:"subject"`
	Detail  string `json:"detail,omitempty"`
	Scheme  string `json:"scheme,omitempty"`
	Weight  int    `json:"weight"`
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON implements json.Marshaler.
func (e *Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(wire{
		Time: e.Time.UTC().Format(timeFormat), Kind: e.Kind, Reason: e.Reason, Client: e.ClientText(), Pod: e.Pod,
		Subject: e.Subject, Detail: e.Detail, Scheme: e.Scheme, Weight: e.Weight,
	})
}

// UnmarshalJSON implements json.Unmarshaler. Sequence, Route and Usual are not in JSON.
func (e *Event) UnmarshalJSON(text []byte) error {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	at, err := time.Parse(timeFormat, w.Time)
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	*e = Event{
		Time: at, Kind: w.Kind, Reason: w.Reason, Pod: w.Pod, Subject: w.Subject, Detail: w.Detail, Scheme: w.Scheme,
		Weight: w.Weight,
	}
	if w.Client != "" {
		e.Client, err = parseClient(w.Client)
	}
	return err
}

// parseClient parses an address or a prefix.
func parseClient(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return MaskNone.client(addr), nil
}

// filter selects events.
type filter struct {
	kind    string
	reasons []string
	pod     string
	client  netip.Prefix
	subject string
}

// newFilter returns the filter of a query. Its error is one of the client.
func (r *Ring) newFilter(q url.Values) (f filter, err error) {
	f = filter{kind: q.Get(ParamKind), subject: strings.ToLower(q.Get(ParamSubject))}
	if f.kind != "" && !r.knows(f.kind, "") {
		return f, fmt.Errorf("%s: this process has no events of the kind %q", ParamKind, f.kind)
	}
	if f.reasons, err = r.reasons(q, f.kind); err != nil {
		return f, err
	}
	if client := q.Get(ParamClient); client != "" {
		if f.client, err = parseClient(client); err != nil {
			if namespace, name, ok := strings.Cut(client, "/"); !ok || namespace == "" || name == "" {
				return f, fmt.Errorf("%s: %q is no address, prefix, or Pod as NAMESPACE/NAME", ParamClient, client)
			}
			f.pod = client
		}
	}
	return f, nil
}

// reasons returns the reasons that a query selects.
func (r *Ring) reasons(q url.Values, kind string) (reasons []string, err error) {
	for word := range strings.SplitSeq(strings.Join(q[ParamReason], ","), ",") {
		switch {
		case word == "":
		case !r.knows(kind, word):
			return nil, fmt.Errorf("%s: this process has no events with the reason %q", ParamReason, word)
		default:
			reasons = append(reasons, word)
		}
	}
	return reasons, nil
}

// has reports whether an event is selected.
func (f *filter) has(e *Event) bool {
	return (f.kind == "" || f.kind == e.Kind) &&
		(len(f.reasons) == 0 || slices.Contains(f.reasons, e.Reason)) &&
		(f.pod == "" || f.pod == e.Pod) &&
		(!f.client.IsValid() || e.Client.IsValid() && f.client.Overlaps(e.Client)) &&
		(f.subject == "" || strings.Contains(strings.ToLower(e.Subject), f.subject))
}

// refuse responds that a request is wrong.
func refuse(w http.ResponseWriter, err error) {
	httpserver.RespondError(w, http.StatusBadRequest, err.Error())
}

// serveTop responds with a Top.
func (r *Ring) serveTop(w http.ResponseWriter, request *http.Request) {
	q, err := r.topQuery(request.URL.Query())
	if err != nil {
		refuse(w, err)
		return
	}
	httpserver.RespondJSON(w, http.StatusOK, r.Top(q))
}

// topQuery returns what a query selects. Its error is one of the client.
func (r *Ring) topQuery(values url.Values) (q TopQuery, err error) {
	f, err := r.newFilter(values)
	if err != nil {
		return q, err
	}
	q = TopQuery{Kind: f.kind, Reasons: f.reasons, By: BySubject}
	if by := values.Get(ParamBy); by != "" {
		if q.By = By(by); !slices.Contains(Bys(), q.By) {
			return q, fmt.Errorf("%s: %q is not one of subject, client and route", ParamBy, by)
		}
	}
	q.Limit, err = limit(values, defaultLimit)
	return q, err
}

// limit returns the parameter, or otherwise if there is none.
func limit(values url.Values, otherwise int) (int, error) {
	text := values.Get(ParamLimit)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, fmt.Errorf("%s: %q is not a number from 1 to %d", ParamLimit, text, maxLimit)
	}
	return n, nil
}

// serveTail responds with events.
func (r *Ring) serveTail(w http.ResponseWriter, request *http.Request) {
	values := request.URL.Query()
	selected, err := r.newFilter(values)
	if err != nil {
		refuse(w, err)
		return
	}
	last, err := limit(values, maxLimit)
	if err != nil {
		refuse(w, err)
		return
	}
	r.turn.Lock()
	before, f, leave := r.follow()
	r.turn.Unlock()
	defer leave()
	p := tail{selected: &selected, turn: &r.turn}
	contentType := "application/jsonl"
	for accepted := range strings.SplitSeq(request.Header.Get("Accept"), ",") {
		media, _, _ := strings.Cut(accepted, ";")
		p.isStream = p.isStream || strings.TrimSpace(media) == "text/event-stream"
	}
	if p.isStream {
		contentType = "text/event-stream"
		p.seen, _ = strconv.ParseUint(request.Header.Get("Last-Event-ID"), 10, 64) // 0 without one
	}
	p.stream = httpserver.NewStream(w, contentType)
	if n := len(before); n > 0 && before[n-1].Sequence < p.seen {
		p.seen = 0 // of a process that was here before
	}
	before = slices.DeleteFunc(before, func(e *Event) bool { return e.Sequence <= p.seen || !selected.has(e) })
	for _, e := range before[max(0, len(before)-last):] {
		if p.write(e) != nil {
			return
		}
	}
	if p.isStream || values.Has(ParamFollow) {
		_ = p.follow(request, f) // it ends when the client closes the connection
	}
}

// tail writes selected events.
type tail struct {
	stream   *httpserver.Stream
	selected *filter
	turn     *sync.Mutex
	isStream bool   // of server-sent events
	seen     uint64 // the sequence number that the client has already
}

// errEnded says that the process ends.
var errEnded = errors.New("the process ends")

// follow writes further events until the client or the Ring ends.
func (p *tail) follow(request *http.Request, f *follower) error {
	alive := time.NewTicker(httpserver.AliveTime)
	defer alive.Stop()
	for err := p.stream.Flush(); ; err = p.stream.Flush() {
		if err != nil {
			return err
		}
		select {
		case <-request.Context().Done():
			return request.Context().Err()
		case <-alive.C:
			err = p.writeText("\n")
		case e, more := <-f.events:
			if !more {
				return errEnded
			}
			err = p.writeAll(e, f)
		}
		if missed := f.missed.Swap(0); err == nil && missed > 0 {
			err = p.writeMissed(missed)
		}
		if err != nil {
			return err
		}
	}
}

// writeAll writes an event, and those that have come since, so that a flood takes few packets.
func (p *tail) writeAll(e *Event, f *follower) error {
	for range followerLen {
		if err := p.write(e); err != nil {
			return err
		}
		select {
		case next, more := <-f.events:
			if !more {
				return errEnded
			}
			e = next
		default:
			return nil
		}
	}
	return p.write(e)
}

// write writes an event if it is selected.
func (p *tail) write(e *Event) error {
	if !p.selected.has(e) {
		return nil
	}
	p.turn.Lock()
	text, err := json.Marshal(e)
	p.turn.Unlock()
	if err != nil {
		return err
	}
	if p.isStream {
		return p.writeText(fmt.Sprintf("id: %d\ndata: %s\n\n", e.Sequence, text))
	}
	return p.writeText(string(text) + "\n")
}

// writeMissed says how many events the client was too slow for.
func (p *tail) writeMissed(n int64) error {
	if p.isStream {
		return p.writeText(fmt.Sprintf("event: missed\ndata: %d\n\n", n))
	}
	return p.writeText(fmt.Sprintf("{\"missed\":%d}\n", n))
}

func (p *tail) writeText(text string) error {
	_, err := p.stream.Write([]byte(text))
	return err
}
