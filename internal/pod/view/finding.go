package view

import (
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/lint"
)

// Finding is a finding of portolan check.
type Finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Object   string `json:"object"`
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
	// Href is the view of the object in the page, where findings are of many objects; empty if there is none.
	Href string `json:"href,omitempty"`
}

// findings converts findings, the most severe first.
func findings(all []lint.Finding) (list []Finding) {
	bySeverity(all)
	for i := range all {
		list = append(list, findingOf(&all[i]))
	}
	return list
}

func bySeverity(all []lint.Finding) {
	slices.SortStableFunc(all, func(a, b lint.Finding) int { return int(b.Severity) - int(a.Severity) })
}

func findingOf(f *lint.Finding) Finding {
	return Finding{
		Rule: f.Rule, Severity: f.Severity.String(), Object: f.Object.String(), Field: f.Field, Message: f.Message, Fix: f.Fix,
	}
}

// Findings is what portolan check finds in all objects.
type Findings struct {
	// Items are the most severe first.
	Items []Finding `json:"items"`
	// Counts is how many there are by severity.
	Counts  map[string]int `json:"counts"`
	NotRead []NotRead      `json:"notRead,omitempty"`
	More    More           `json:"more,omitempty"`
}

// Findings returns what is found in all objects; nothing if they are not read with all fields.
func (m *Model) Findings() *Findings {
	made := &Findings{Items: []Finding{}, Counts: make(map[string]int)}
	made.NotRead = append(m.lacks(cluster.KindService), m.partly("some fields", cluster.KindService)...)
	if len(made.NotRead) > 0 {
		return made
	}
	all := slices.Clone(m.Found())
	bySeverity(all)
	for i := range all {
		made.Counts[all[i].Severity.String()]++
	}
	for _, f := range cut(&made.More, "items", all, mostFindings) {
		item := findingOf(&f)
		item.Href = href(&Item{Kind: f.Object.Kind.String(), Namespace: f.Object.Namespace, Name: f.Object.Name})
		made.Items = append(made.Items, item)
	}
	return made
}
