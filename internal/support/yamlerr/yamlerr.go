// Package yamlerr extracts the line number from an error of go.yaml.in/yaml/v3.
//
// The library has no function for it: its errors are text with the line in several
// places, counted from 0 or from 1.
package yamlerr

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	lineNumber = regexp.MustCompile(`^line (\d+): `)
	// The library counts lines from 0 in errors of its parser and about tabs, from 1 in
	// errors of its scanner, and omits the first line.
	parserError = regexp.MustCompile(`^(did not find expected (<|node content|'-' indicator|key|',' or)|` +
		`found (duplicate|incompatible|undefined|a tab))`)
	// The library prints an invalid key as a Go value.
	invalidKey  = regexp.MustCompile(`^invalid map key: .*`)
	noLineError = regexp.MustCompile(`^(control characters|invalid |unknown anchor|input error)`)
)

// Split returns the line of an error, from 1, or 0 if it has none, and the error without
// the line and the name of the library. If err contains several errors, it uses the first.
func Split(err error) (line int, clean error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var typeErr *yaml.TypeError
	if errors.As(err, &typeErr) && len(typeErr.Errors) > 0 {
		text = typeErr.Errors[0]
	}
	if m := lineNumber.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		line, _ = strconv.Atoi(m[1])
		if parserError.MatchString(text) {
			line++
		}
	}
	if noLineError.MatchString(text) {
		text = invalidKey.ReplaceAllString(text, "a key is a mapping or a list")
		return 0, errors.New(text)
	}
	return max(line, 1), errors.New(text)
}
