package droplog

import (
	"encoding/json"
	"net/http"
	"time"

	"portolan.dev/portolan/internal/support/httpserver"
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

// ServeHTTP responds with the last lines as JSON, one Record a line (https://jsonlines.org).
// Empty lines mean nothing.
func (l *Log) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	records, f, leave := l.follow()
	defer leave()
	p := page{httpserver.NewStream(w, "application/jsonl"), query.Get(ParamNamespace)}
	for i := range records {
		if p.write(&records[i]) != nil {
			return
		}
	}
	if !query.Has(ParamFollow) || p.stream.Flush() != nil {
		return
	}
	alive := time.NewTicker(httpserver.AliveTime)
	defer alive.Stop()
	for {
		var err error
		select {
		case <-request.Context().Done():
			return
		case <-alive.C:
			_, err = p.stream.Write([]byte("\n"))
		case r, more := <-f.records:
			if !more {
				return
			}
			err = p.write(&r)
		}
		if err != nil || p.stream.Flush() != nil {
			return
		}
	}
}

// page writes the lines of a Namespace; of all if it is empty.
type page struct {
	stream    *httpserver.Stream
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
	_, err = p.stream.Write(append(line, '\n'))
	return err
}
