// Package dashboard makes the Grafana dashboards in deploy/grafana and in the chart from tables of panels.
//
// The JSON follows the dashboard model of Grafana 10 (schemaVersion 39). A dashboard has no identifiers of one
// Grafana: its data source, jobs and instances are variables, and its uid is a name.
package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Dashboard is a page of panels.
type Dashboard struct {
	// Name is that of the file, and with the prefix portolan- the uid.
	Name        string
	Title       string
	Description string
	// Metric is one that each process has which the dashboard is about: the variables job and instance list those.
	Metric string
	Rows   []Row
}

// Row is a titled group of panels, which are placed side by side, and below one another where there is no room.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is one graph, number or table.
type Panel struct {
	Title string
	// Description says what the panel shows and what a high or low value means.
	Description string
	// Unit is one of Grafana's units, such as s, bytes or percentunit.
	Unit Unit
	Kind Kind
	// Warn and Alarm color values; 0 is none. With Low they color values below them.
	Warn, Alarm float64
	Low         bool
	Queries     []Query
	// Event is what must happen before the panel has data, if a healthy process has none. Empty: it always has.
	Event string
}

// Kind is the form of a panel.
type Kind string

// The forms.
const (
	Graph  Kind = "timeseries"
	Number Kind = "stat"
	Table  Kind = "table"
)

// Unit is a unit of Grafana.
type Unit string

// The units in use.
const (
	Count       Unit = "short"
	PerSecond   Unit = "cps"
	Requests    Unit = "reqps"
	Seconds     Unit = "s"
	Bytes       Unit = "bytes"
	BytesPerSec Unit = "Bps"
	Share       Unit = "percentunit"
	Packets     Unit = "pps"
	Ago         Unit = "dateTimeFromNow"
	Bool        Unit = "bool_yes_no"
)

// Query is one query of a panel.
type Query struct {
	// Expr is PromQL without selectors of job and instance, which PromQL adds.
	Expr string
	// Legend names a series, with labels in double braces.
	Legend string
}

// metricName matches the names of metrics in an expression, and the brace of a selector after them.
var metricName = regexp.MustCompile(`\b(?:portolan|kubeproxy|process|go|rest_client)_[a-z0-9_]+\b(\{)?`)

// PromQL returns the expression with selectors of the variables job and instance.
func (q Query) PromQL() string {
	const selector = `{job=~"$job", instance=~"$instance"`
	return metricName.ReplaceAllStringFunc(q.Expr, func(name string) string {
		if metric, found := strings.CutSuffix(name, "{"); found {
			return metric + selector + ", "
		}
		return name + selector + "}"
	})
}

// Metrics returns the names of the metrics in an expression, with suffixes such as _bucket.
func Metrics(expr string) (names []string) {
	for _, name := range metricName.FindAllString(expr, -1) {
		names = append(names, strings.TrimSuffix(name, "{"))
	}
	return names
}

// JSON returns the dashboard as Grafana imports it.
func (d *Dashboard) JSON() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(d.model()); err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.Name, err)
	}
	return out.Bytes(), nil
}
