package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/support/suggest"
)

// everyRule returns the rules of the model and of manifests.
func everyRule() []lint.Rule { return append(lint.Rules(), lint.ManifestRules()...) }

// findRule returns the rule with an ID. Its error suggests a similar ID.
func findRule(id string) (lint.Rule, error) {
	rules := everyRule()
	if i := slices.IndexFunc(rules, func(r lint.Rule) bool { return r.ID == id }); i >= 0 {
		return rules[i], nil
	}
	ids := make([]string, len(rules))
	for i := range rules {
		ids[i] = rules[i].ID
	}
	if similar := suggest.Closest(id, ids); similar != "" {
		return lint.Rule{}, fmt.Errorf("there is no rule %q; did you mean %s?", id, similar)
	}
	return lint.Rule{}, fmt.Errorf("there is no rule %q; portolan check --explain lists them", id)
}

// ruleCompletions returns the IDs of all rules for the shell's completion.
func ruleCompletions() (ids []cobra.Completion) {
	for _, r := range everyRule() {
		ids = append(ids, cobra.CompletionWithDesc(r.ID, r.Title))
	}
	return ids
}

// explainRules prints the explanations of the rules with these IDs, or a list of all
// rules if there is none.
func explainRules(w io.Writer, ids []string) error {
	var b strings.Builder
	for i, id := range ids {
		r, err := findRule(id)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteString("\n")
		}
		text, err := r.Explanation()
		if err != nil {
			return err
		}
		b.WriteString(text)
	}
	if len(ids) == 0 {
		for _, r := range everyRule() {
			fmt.Fprintf(&b, "%-34s %-8s %s\n", r.ID, r.Severity, r.Title)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
