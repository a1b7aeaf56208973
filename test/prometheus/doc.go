// Package prometheus checks dashboards, alerts and runbooks with a real Prometheus, which scrapes real processes of
// portolan: that each query of a dashboard has data, that each alert fires when its cause is there, and that the
// commands of its runbook show what the page says.
//
// It needs root and Prometheus (Debian's package prometheus), and is skipped without them.
package prometheus
