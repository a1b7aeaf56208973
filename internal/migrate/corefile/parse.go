package corefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns/caddy/caddyfile"

	"portolan.dev/portolan/internal/support/deadline"
)

// block is a server block.
type block struct {
	keys       []string
	statements []statement
	line       int // line of the first key

	// Derived from the keys and statements by readBlock:
	sites []site
	zones []string // the zones without duplicates and trailing dots; "" is the root
	texts []string // the zones as written, including address ranges
	root  string   // the directory of the plugin root
}

// statement is a plugin in a server block, or an option of a plugin.
type statement struct {
	file    string
	line    int
	plugin  string // the plugin of an option; empty for a plugin
	name    string
	args    []string
	options []statement
}

// path returns the name of a plugin, or the plugin and the name of an option.
func (s *statement) path() string {
	if s.plugin == "" {
		return s.name
	}
	return s.plugin + " " + s.name
}

// MaxOctets is the maximum size of a Corefile. A ConfigMap is smaller.
const MaxOctets = 4 << 20

var errLong = errors.New("longer than 4 MiB")

// parse reads the server blocks of a Corefile.
func parse(path string, data []byte) (blocks []block, err error) {
	if len(data) > MaxOctets {
		return nil, &positionError{"corefile", path, 1, errLong}
	}
	// The parser panics if it cannot read an imported file to its end.
	defer func() {
		if failed, is := recover().(error); is {
			blocks, err = nil, fmt.Errorf("corefile %s: %w", path, failed)
		}
	}()
	// Its messages about imports are replaced by notes, see emptyImports.
	defer log.SetOutput(log.Writer())
	log.SetOutput(io.Discard)
	parsed, err := caddyfile.Parse(path, bytes.NewReader(data), nil)
	if err != nil {
		return nil, parserError(path, err)
	}
	lines := linesOfKeys(path, data)
	for _, p := range parsed {
		b := block{keys: p.Keys, line: 1}
		names := slices.SortedFunc(maps.Keys(p.Tokens), func(a, b string) int {
			return cmp.Or(cmp.Compare(p.Tokens[a][0].Line, p.Tokens[b][0].Line), cmp.Compare(a, b))
		})
		for _, name := range names {
			b.statements = append(b.statements, statements(path, p.Tokens[name])...)
		}
		if found := lines[p.Keys[0]]; len(found) > 0 {
			b.line, lines[p.Keys[0]] = found[0], found[1:]
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

var parserMessage = regexp.MustCompile(`^(.*):(\d+) - (?:Error during parsing|Syntax error): (?s:(.*))$`)

// parserError converts an error of the parser to an positionError.
func parserError(path string, err error) error {
	m := parserMessage.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("corefile %s: %w", path, err)
	}
	line, _ := strconv.Atoi(m[2])
	first := min(1, len(m[3]))
	message := strings.ToLower(m[3][:first]) + m[3][first:]
	return &positionError{"corefile", cmp.Or(m[1], path), line, errors.New(message)}
}

// statements returns the uses of one plugin in a block.
func statements(path string, tokens []caddyfile.Token) (all []statement) {
	d := caddyfile.NewDispenserTokens(path, tokens)
	for d.Next() {
		s := statement{file: d.File(), line: d.Line(), name: d.Val(), args: d.RemainingArgs()}
		for d.NextBlock() {
			o := statement{file: d.File(), line: d.Line(), plugin: s.name, name: d.Val(), args: d.RemainingArgs()}
			s.options = append(s.options, o)
		}
		all = append(all, s)
	}
	return all
}

// linesOfKeys returns the line numbers of words at the beginning of a line. The parser
// discards those of server block keys.
func linesOfKeys(path string, data []byte) map[string][]int {
	lines := make(map[string][]int)
	last := 0
	for d := caddyfile.NewDispenser(path, bytes.NewReader(data)); d.Next(); last = d.Line() {
		if d.Line() != last {
			key := strings.TrimSuffix(d.Val(), ",")
			lines[key] = append(lines[key], d.Line())
		}
	}
	return lines
}

// variable matches references to environment variables.
var variable = regexp.MustCompile(`\{\$[^}]+\}|\{%[^%]+%\}`)

// importedFiles returns the files that match the pattern of an import in the file at
// path; none if the pattern names a snippet.
func importedFiles(path, pattern string) []string {
	pattern = variable.ReplaceAllStringFunc(pattern, func(v string) string { return os.Getenv(strings.Trim(v, "{$%}")) })
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(path), pattern)
	}
	files, _ := filepath.Glob(pattern)
	return files
}

// emptyImports returns notes on the imports that no file matches.
func emptyImports(path string, data []byte) (notes []Note) {
	for d := caddyfile.NewDispenser(path, bytes.NewReader(data)); d.Next(); {
		if d.Val() != "import" || !d.NextArg() || !strings.ContainsAny(d.Val(), "*?") {
			continue
		}
		if len(importedFiles(path, d.Val())) == 0 {
			notes = append(
				notes,
				Note{File: path, Line: d.Line(), Directive: "import", Kind: Done, Text: "no file matches " + d.Val()},
			)
		}
	}
	return notes
}

// maxImports is the maximum depth of imports that Content follows.
const maxImports = 16

// Content returns the text of a Corefile and of the files that it imports. If it has not
// changed, the meaning of the Corefile has not changed, except for environment variables.
func Content(path string, data []byte) ([]byte, error) {
	var all bytes.Buffer
	err := appendContent(&all, path, data, 0)
	return all.Bytes(), err
}

func appendContent(all *bytes.Buffer, path string, data []byte, depth int) error {
	fmt.Fprintf(all, "%s %d\n", path, len(data))
	all.Write(data)
	if depth == maxImports || all.Len() > MaxOctets {
		return nil
	}
	for d := caddyfile.NewDispenser(path, io.LimitReader(bytes.NewReader(data), MaxOctets)); d.Next(); {
		if d.Val() != "import" || !d.NextArg() {
			continue
		}
		for _, file := range importedFiles(path, d.Val()) {
			data, err := deadline.ReadFile(file, deadline.File, deadline.Small)
			if err != nil {
				return err
			}
			if err := appendContent(all, file, data, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
