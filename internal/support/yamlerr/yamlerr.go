// Package yamlerr reads the line out of an error of the YAML library, which
// tells it in several ways.
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
	// The library counts lines from 0 in what its parser finds (and of tabs),
	// from 1 in what its scanner finds, and tells no line when it is the first.
	parserError = regexp.MustCompile(`^(did not find expected (<|node content|'-' indicator|key|',' or)|found (duplicate|incompatible|undefined|a tab))`)
	// It prints what is no key as a value of Go.
	noKey       = regexp.MustCompile(`^invalid map key: .*`)
	noLineError = regexp.MustCompile(`^(control characters|invalid |unknown anchor|input error)`)
)

// Of is the line that err is about, from 1, or 0 when it is about none; and
// err without its line and the library's name. Of several errors it is the
// first.
func Split(err error) (line int, clean error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var several *yaml.TypeError
	if errors.As(err, &several) && len(several.Errors) > 0 {
		text = several.Errors[0]
	}
	if m := lineNumber.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		line, _ = strconv.Atoi(m[1])
		if parserError.MatchString(text) {
			line++
		}
	}
	if noLineError.MatchString(text) {
		text = noKey.ReplaceAllString(text, "a key is a mapping or a list")
		return 0, errors.New(text)
	}
	return max(line, 1), errors.New(text)
}
