package cli

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"portolan.dev/portolan/internal/config"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/suite"
)

// suiteInvalid is the rule of findings that are assertions that cannot be judged.
var suiteInvalid = lint.Rule{
	ID: "suite-invalid", Title: "an assertion cannot be judged", Severity: lint.Error,
	Description: "The file is wrong, or names what the cluster does not have",
	Cure:        "correct the file", Source: suiteSource,
}

// suiteSource is where users read about suites.
const suiteSource = "https://portolan.dev/portolan/docs/test.md"

// errMisread is the error of a test on manifests whose documents are not read as they are written; these are printed
// before.
var errMisread = errors.New(
	"the manifests have documents that cannot be read as they are written: what is judged may depend on them")

// readSuites reads the files of assertions. The errors are those of files that are left out.
func readSuites(files []string) (all []*suite.Suite, errs []error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = &suite.Error{File: file, Err: at.Err}
		}
		var s *suite.Suite
		if err == nil {
			s, err = suite.Read(file, text)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, s)
	}
	return all, errs
}

// blame adds what could not be judged by errors of suites, and what of the manifests is misread. It returns an error
// if there is any, with a line for each of the suites.
func (t *tested) blame(errs []error, misread []podapp.Found) error {
	all := config.Flat(errors.Join(errs...))
	for _, err := range all {
		if at, ok := errors.AsType[*suite.Error](err); ok {
			t.faults = append(t.faults, podapp.Found{
				Rule: suiteInvalid.ID, Severity: lint.Error, Message: at.Err.Error(), File: at.File, Line: max(1, at.Line),
			})
		}
		if of, ok := errors.AsType[*misreadError](err); ok {
			t.faults = append(t.faults, of.documents...)
		}
	}
	if t.faults = append(t.faults, misread...); len(misread) > 0 {
		all = append(all, errMisread)
	}
	if len(all) == 0 {
		return nil
	}
	return config.Errors(all)
}

// unjudged returns errors that leave nothing to judge. The tested is nil unless documents are to blame, which reports
// have.
func (t *tested) unjudged(errs []error) (*tested, error) {
	err := t.blame(errs, nil)
	if slices.ContainsFunc(errs, func(err error) bool { return errors.As(err, new(*misreadError)) }) {
		return t, err
	}
	return nil, err
}
