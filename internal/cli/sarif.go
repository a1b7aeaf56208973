package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/lint"
)

// The parts of a SARIF 2.1.0 log (OASIS, Static Analysis Results Interchange Format)
// that printSARIF writes. The numbers are sections of the specification.
type (
	sarifLog struct { // 3.13
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct { // 3.14
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct { // 3.18
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct { // 3.19
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct { // 3.49
		ID                   string             `json:"id"`
		ShortDescription     sarifText          `json:"shortDescription"`
		FullDescription      sarifText          `json:"fullDescription"`
		Help                 sarifText          `json:"help"`
		DefaultConfiguration sarifConfiguration `json:"defaultConfiguration"`
	}
	sarifConfiguration struct { // 3.50
		Level string `json:"level"`
	}
	sarifText struct { // 3.11, 3.12
		Text string `json:"text"`
	}
	sarifResult struct { // 3.27
		RuleID              string            `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               string            `json:"level"`
		Message             sarifText         `json:"message"`
		Locations           []sarifLocation   `json:"locations,omitempty"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct { // 3.28
		PhysicalLocation *sarifPhysical `json:"physicalLocation,omitempty"`
		LogicalLocations []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct { // 3.29
		ArtifactLocation sarifArtifact `json:"artifactLocation"`
		Region           sarifRegion   `json:"region"`
	}
	sarifArtifact struct { // 3.4
		URI string `json:"uri"`
	}
	sarifRegion struct { // 3.30
		StartLine int `json:"startLine"`
	}
	sarifLogical struct { // 3.33
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
)

// printSARIF prints the findings as a SARIF log, which lists every rule.
func printSARIF(w io.Writer, f findings) error {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "portolan", Version: version()}}, Results: []sarifResult{}}
	rules := f.rules
	if rules == nil {
		rules = everyRule()
	}
	for _, r := range rules {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: r.ID, ShortDescription: sarifText{r.Title}, FullDescription: sarifText{r.Description},
			Help: sarifText{help(&r)}, DefaultConfiguration: sarifConfiguration{r.Severity.String()},
		})
	}
	seen := make(map[string]int)
	for i := range f.shown {
		one := &f.shown[i]
		printOf := fingerprint(one)
		seen[printOf]++
		run.Results = append(run.Results, sarifResult{
			RuleID: one.Rule, RuleIndex: slices.IndexFunc(rules, func(r lint.Rule) bool { return r.ID == one.Rule }),
			Level: one.Severity.String(), Message: sarifText{withoutPlace(one)}, Locations: locations(one),
			PartialFingerprints: map[string]string{"portolan/v1": printOf + ":" + strconv.Itoa(seen[printOf])},
		})
	}
	return printJSON(
		w, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}},
	)
}

// help returns the text that GitHub shows beside a result.
func help(r *lint.Rule) string {
	example := ""
	if _, err := findRule(r.ID); err == nil {
		example = fmt.Sprintf(" Run portolan check --explain %s for an example.", r.ID)
	}
	return fmt.Sprintf("%s%s. %s.\n\nCure: %s.%s\n\nSource: %s.",
		strings.ToUpper(r.Title[:1]), r.Title[1:], strings.TrimSuffix(r.Description, "."), r.Cure, example, r.Source)
}

// fingerprint returns a hash that does not depend on line numbers.
func fingerprint(f *podapp.Found) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{f.Rule, f.Object, f.Field}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// locations returns the position of a finding and its object.
func locations(f *podapp.Found) []sarifLocation {
	var l sarifLocation
	if f.File != "" {
		l.PhysicalLocation = &sarifPhysical{sarifArtifact{uri(f.File)}, sarifRegion{max(1, f.Line)}}
	}
	if f.Object != "" {
		l.LogicalLocations = []sarifLogical{{f.Object, "resource"}}
	}
	if l.PhysicalLocation == nil && l.LogicalLocations == nil {
		return nil
	}
	return []sarifLocation{l}
}

// uri returns a file as a URI reference, relative to the working directory if the file
// is below it.
func uri(file string) string {
	if filepath.IsAbs(file) {
		if dir, err := os.Getwd(); err == nil {
			if below, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(below) {
				file = below
			}
		}
	}
	u := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return u.String()
}
