package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/view"
	"portolan.dev/portolan/internal/support/httpserver"
)

// Zones are the cluster's zones.
type Zones interface {
	// Responder returns what answers for the zones as they are now. Its answers count nowhere.
	Responder() (*respond.Responder, error)
	// ZoneProblems returns why local zones are not loaded.
	ZoneProblems() []*localzone.ZoneError
	// Release gives memory back that the zones take for the page alone.
	Release()
}

// PageConfig configures a Page.
type PageConfig struct {
	Settings         config.Config
	Version, Command string
	// Store is the model; nil if the process reads no cluster.
	Store *cluster.Store
	// Zones are nil without a Store.
	Zones Zones
	// Whole: objects have all fields of the model.
	Whole bool
	// Alone: the process is there for the page only.
	Alone bool
	// Sources returns how current the kinds are that are read, and Upstreams the servers that names outside the
	// cluster are asked of; nil have none.
	Sources   func() []view.Source
	Upstreams func() []view.Upstream
	// Failures returns the last failures that the process knows of, the newest first; nil knows none.
	Failures func(view.Involved) []any
	Log      *slog.Logger
}

// Page serves the views of the page for operators. It computes one view at a time, and keeps what it compiled for that
// for idleTime: a process that nobody looks at pays nothing.
type Page struct {
	cfg PageConfig
	// parts returns the parts of the process; nil before Parts.
	parts atomic.Pointer[func() []view.Part]
	// turn has a token while a view is computed, and waiting one for each request that waits or is computed.
	turn, waiting chan struct{}
	// found is what was found last, for who has the turn.
	found found

	mu        sync.Mutex // guards what follows, beside turn
	settings  config.Config
	inspector *Inspector // nil until it is needed
	idle      *time.Timer
}

// found is what portolan check finds in all objects.
type found struct {
	all []lint.Finding
	// by is whose settings it was found with, and version that of the model; nil before anything was.
	by      *Inspector
	version uint64
	at      time.Time
}

const (
	// mostWaiting is the maximum number of requests that wait for their turn or whose responses are sent, and waitTime
	// how long they wait.
	mostWaiting = 8
	waitTime    = 5 * time.Second
	// sendTime is how long a client may take to read a response.
	sendTime = 10 * time.Second
	// idleTime is how long what was compiled is kept after the last view.
	idleTime = 2 * time.Minute
	// mostResponse is the maximum length of a response, in octets.
	mostResponse = 4 << 20
	// mostQuery is the maximum length of the parameters of a request, in octets.
	mostQuery = 8 << 10
)

// NewPage returns a Page. It starts nothing.
func NewPage(cfg PageConfig) *Page {
	p := &Page{cfg: cfg, settings: cfg.Settings, turn: make(chan struct{}, 1), waiting: make(chan struct{}, mostWaiting)}
	return p
}

// Name returns the part's name.
func (p *Page) Name() string { return "page" }

// Needs returns nothing: the page shows what is there.
func (p *Page) Needs() []cluster.Kind { return nil }

// Bind does nothing: the admin server has the socket.
func (p *Page) Bind(context.Context) ([]any, error) { return nil, nil }

// Run waits until ctx is done if the page is alone; otherwise the process ends with its other parts.
func (p *Page) Run(ctx context.Context) error {
	if p.cfg.Alone {
		<-ctx.Done()
	}
	return nil
}

// Close does nothing.
func (p *Page) Close() {}

// Ready returns nothing: the views say what is missing.
func (p *Page) Ready() (missing, remarks []string) { return nil, nil }

// Metrics returns a collector without metrics.
func (p *Page) Metrics() prometheus.Collector { return noMetrics{} }

type noMetrics struct{}

// Describe sends nothing.
func (noMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends nothing.
func (noMetrics) Collect(chan<- prometheus.Metric) {}

// Parts sets how the parts of the process are asked for.
func (p *Page) Parts(parts func() []view.Part) { p.parts.Store(&parts) }

// Reconfigure has the views use the settings.
func (p *Page) Reconfigure(cfg config.Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings, p.inspector = cfg, nil
	return nil
}

// configured returns the settings.
func (p *Page) configured() config.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}

// Views returns the views by path.
func (p *Page) Views() map[string]http.Handler {
	return map[string]http.Handler{
		"/api/v1/overview":                    p.handler(p.overview),
		"/api/v1/search":                      p.handler(p.search),
		"/api/v1/services/{namespace}/{name}": p.handler(p.service),
		"/api/v1/pods/{namespace}/{name}":     p.handler(p.pod),
		"/api/v1/policies/{namespace}/{name}": p.handler(p.policy),
		"/api/v1/policies/{name}":             p.handler(p.policy),
		"/api/v1/gateways":                    p.handler(p.gateways),
		"/api/v1/findings":                    p.handler(p.findings),
		ExplainPath:                           p.answering(p.explain),
	}
}

// refusal is an error with the status of the response.
type refusal struct {
	status int
	why    string
}

func (e *refusal) Error() string { return e.why }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// answer is the body of a response.
type answer struct {
	contentType string
	// exit is that of a command which is asked for; -1 for others.
	exit int
	body limited
}

// noExit is the exit of answers that are no command's.
const noExit = -1

// handler responds with a view as JSON.
func (p *Page) handler(compute func(*http.Request) (any, error)) http.Handler {
	return p.answering(func(r *http.Request) (*answer, error) {
		made, err := compute(r)
		if err != nil {
			return nil, err
		}
		a := &answer{contentType: "application/json", exit: noExit}
		return a, a.encode(made, "")
	})
}

// encode writes a value as JSON.
func (a *answer) encode(v any, indent string) error {
	enc := json.NewEncoder(&a.body)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(v)
}

// answering responds with what compute returns when it is the request's turn. A client that reads slowly keeps its
// place among those that wait, but not the turn.
func (p *Page) answering(compute func(*http.Request) (*answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.waiting <- struct{}{}:
			defer func() { <-p.waiting }()
		default:
			writeError(w, errBusy)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(waitTime + sendTime)) // not in tests
		made, err := p.inTurn(r, compute)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", made.contentType)
		if made.exit != noExit {
			w.Header().Set(ExitField, strconv.Itoa(made.exit))
		}
		_, _ = io.WriteString(w, made.body.String()) // it fails if the client closed the connection
	})
}

var errBusy = &refusal{http.StatusServiceUnavailable, "the page is busy with other requests; try again"}

// inTurn computes an answer when it is the request's turn.
func (p *Page) inTurn(r *http.Request, compute func(*http.Request) (*answer, error)) (*answer, error) {
	if len(r.URL.RawQuery) > mostQuery {
		return nil, refuse(http.StatusRequestURITooLong, "the parameters are longer than %d octets", mostQuery)
	}
	late := time.NewTimer(waitTime)
	defer late.Stop()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-late.C:
		return nil, errBusy
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	defer p.rest()
	return p.compute(r, compute)
}

// compute computes an answer. A panic is an error, so that whoever asks is told, and is logged.
func (p *Page) compute(r *http.Request, compute func(*http.Request) (*answer, error)) (made *answer, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			p.cfg.Log.Error("a view failed by a fault of this program; please report it", "url", r.URL.String(), "fault", fault,
				"stack", string(debug.Stack()))
			err = refuse(
				http.StatusInternalServerError,
				"the view failed by a fault of Portolan, of which the log of the process "+
					"has more; please report it",
			)
		}
	}()
	return compute(r)
}

// rest has what was compiled released when nobody has asked for a while.
func (p *Page) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = time.AfterFunc(idleTime, p.release)
		return
	}
	p.idle.Reset(idleTime)
}

// release gives back what was compiled, unless a view is computed.
func (p *Page) release() {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	default:
		return // rest comes again
	}
	p.found = found{}
	p.mu.Lock()
	p.inspector = nil
	p.mu.Unlock()
	if p.cfg.Zones != nil {
		p.cfg.Zones.Release()
	}
}

// current returns the Inspector, with the zones as they are now. It is used by one request at a time.
func (p *Page) current() (*Inspector, error) {
	if p.cfg.Store == nil {
		return nil, refuse(http.StatusNotImplemented, "this process reads no cluster; %s", p.cure())
	}
	responder, err := p.cfg.Zones.Responder()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inspector == nil {
		if p.inspector, err = New(p.settings, p.cfg.Store, responder); err != nil {
			return nil, err
		}
		p.inspector.Loaded(p.loaded())
	}
	p.inspector.dns = responder
	p.inspector.Zones(p.cfg.Zones.ZoneProblems())
	return p.inspector, nil
}

// loaded says where the cluster is read from.
func (p *Page) loaded() (l source.Loaded) {
	if p.settings.Manifests != "" {
		l.From = []string{p.settings.Manifests}
	}
	return l
}

// cure says how to have more read.
func (p *Page) cure() string {
	if p.cfg.Alone {
		return "the account may not read them, or they are not read yet"
	}
	return "set admin.page to cluster, or run portolan page"
}

// limited is a text of up to mostResponse octets.
type limited struct{ strings.Builder }

var errTooLong = &refusal{http.StatusInternalServerError, "the answer is too long; ask for less"}

// Write fails when the text becomes too long.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > mostResponse {
		return 0, errTooLong
	}
	return l.Builder.Write(p)
}

func writeError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if r, ok := errors.AsType[*refusal](err); ok {
		if status = r.status; status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
	}
	httpserver.RespondError(w, status, err.Error())
}
