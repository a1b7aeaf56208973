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
		Rule:     f.Rule,
		Severity: f.Severity.String(),
		Object:   f.Object.String(),
		Field:    f.Field,
		Message:  f.Message,
		Fix:      f.Fix,
	}
}

// Findings is what portolan check finds in all objects.
type Findings struct {
	// Items are the most severe first.
	Items []Finding `json:"items"`
	// Counts is how many there are by severity.
	Counts map[string]int `json:"counts"`
	// Checked: objects are checked, as far as their kinds are read. Otherwise they are not read with all fields.
	Checked bool `json:"checked"`
	// NotRead are the kinds without which some rules do not apply.
	NotRead []NotRead `json:"notRead,omitempty"`
	More    More      `json:"more,omitempty"`
}

// Findings returns what is found in all objects that are read, up to a number; nothing if they are not read with all
// fields.
func (m *Model) Findings(limit int) *Findings {
	made := &Findings{Items: []Finding{}, Counts: make(map[string]int), Checked: m.Whole}
	if !m.Whole {
		made.NotRead = append(m.lacks(cluster.KindService), m.partly("some fields", cluster.KindService)...)
		return made
	}
	made.NotRead = append(m.lacks(m.checkedKinds()...), m.unreadReferences()...)
	all := slices.Clone(m.Found())
	bySeverity(all)
	for i := range all {
		made.Counts[all[i].Severity.String()]++
	}
	for _, f := range cut(&made.More, "items", all, limit) {
		item := findingOf(&f)
		item.Href = href(&Item{Kind: f.Object.Kind.String(), Namespace: f.Object.Namespace, Name: f.Object.Name})
		made.Items = append(made.Items, item)
	}
	return made
}

// checkedKinds returns the kinds that rules need, but for those of unreadReferences.
func (m *Model) checkedKinds() []cluster.Kind {
	return slices.DeleteFunc(
		lint.Kinds(),
		func(k cluster.Kind) bool { return slices.Contains(cluster.ReferencedKinds(), k) },
	)
}

// unreadReferences returns the kinds to which objects refer, such as Secrets with certificates, that are not read:
// gateways read them, and portolan check.
func (m *Model) unreadReferences() (all []NotRead) {
	var kinds []cluster.Kind
	for ref := range cluster.Referenced(m.View) {
		if !m.View.Loaded(ref.Kind) && !slices.Contains(kinds, ref.Kind) {
			kinds = append(kinds, ref.Kind)
		}
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		all = append(all, NotRead{k.String(), k.Plural() + " are not read for the page; portolan check reads them"})
	}
	return all
}
