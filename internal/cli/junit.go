package cli

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/suite"
)

// The parts of a report of JUnit, as CI systems read it.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Failure *junitFailure `xml:"failure"`
		Error   *junitFailure `xml:"error"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// add adds a case to the suite of its file.
func (s *junitSuites) add(c junitCase) {
	at := slices.IndexFunc(s.Suites, func(of junitSuite) bool { return of.Name == c.File })
	if at < 0 {
		at = len(s.Suites)
		s.Suites = append(s.Suites, junitSuite{Name: c.File})
	}
	of := &s.Suites[at]
	s.Tests++
	of.Tests++
	if c.Failure != nil {
		s.Failures++
		of.Failures++
	}
	if c.Error != nil {
		s.Errors++
		of.Errors++
	}
	of.Cases = append(of.Cases, c)
}

// failureOf returns why an assertion does not hold, with the explanation; nil if it holds.
func failureOf(r *suite.Result) (*junitFailure, error) {
	if r.Passed() {
		return nil, nil
	}
	f := &junitFailure{Message: explain.Plain(r.Why)}
	if r.Explanation == nil {
		return f, nil
	}
	var b strings.Builder
	err := r.Explanation.WriteText(&b, explain.Style{})
	f.Text = b.String()
	return f, err
}

// printJUnit prints a report of JUnit.
func printJUnit(w io.Writer, t *tested) error {
	report := junitSuites{Name: "portolan test", Time: fmt.Sprintf("%.3f", t.took.Seconds())}
	for i := range t.results {
		r := &t.results[i]
		failure, err := failureOf(r)
		if err != nil {
			return err
		}
		report.add(junitCase{
			Name: r.Title(), Class: r.Test.File, File: r.Test.File, Line: r.Test.Line, Failure: failure,
		})
	}
	for i := range t.faults {
		fault := &t.faults[i]
		report.add(junitCase{
			Name: fmt.Sprintf("%s:%d", fault.File, fault.Line), Class: fault.File, File: fault.File, Line: fault.Line,
			Error: &junitFailure{Message: explain.Plain(withoutPlace(fault))},
		})
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(report); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
