package droplog

import (
	"encoding/json"
	"net/http"
	"time"
)

// Path is the path of the page on the admin server.
const Path = "/debug/policy/log"

// Parameters of the page.
const (
	// ParamFollow has the page go on with further lines; its value does not matter.
	ParamFollow = "follow"
	// ParamNamespace has it list packets from or to Pods of a Namespace only.
	ParamNamespace = "namespace"
)

// writeTime is the longest time that a client may take for a line. aliveTime is the longest
// time without one: an empty line shows that the client is gone.
const (
	writeTime = 10 * time.Second
	aliveTime = 15 * time.Second
)

// ServeHTTP responds with the last lines as JSON, one Record a line (https://jsonlines.org).
// Empty lines mean nothing.
func (l *Log) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	records, f, leave := l.follow()
	defer leave()
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	p := page{w, http.NewResponseController(w), query.Get(ParamNamespace)}
	for i := range records {
		if p.write(&records[i]) != nil {
			return
		}
	}
	if !query.Has(ParamFollow) || p.flush() != nil {
		return
	}
	alive := time.NewTicker(aliveTime)
	defer alive.Stop()
	for {
		var err error
		select {
		case <-request.Context().Done():
			return
		case <-alive.C:
			_, err = w.Write([]byte("\n"))
		case r, more := <-f.records:
			if !more {
				return
			}
			err = p.write(&r)
		}
		if err != nil || p.flush() != nil {
			return
		}
	}
}

// page writes the lines of a Namespace; of all if it is empty.
type page struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	namespace string
}

func (p *page) write(r *Record) error {
	if p.namespace != "" && !r.IsOf(p.namespace) {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := p.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, err = p.w.Write(append(line, '\n'))
	return err
}

// flush sends what is written, and lets the response take longer.
func (p *page) flush() error {
	if err := p.control.Flush(); err != nil {
		return err
	}
	return p.control.SetWriteDeadline(time.Now().Add(aliveTime + writeTime))
}
