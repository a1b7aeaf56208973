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
)

// block is a server block.
type block struct {
	keys       []string
	statements []statement
	line       int // of its first key

	// Made of these:
	sites []site
	zones []string // its zones, each once, without the closing dot; "" is the root
	texts []string // the same as they are written: ranges are not zones yet
	root  string   // the directory of files, of the plugin root
}

// statement is a plugin in a server block, or an option of a plugin.
type statement struct {
	file    string
	line    int
	of      string // the plugin, of an option
	name    string
	args    []string
	options []statement
}

// path is the statement's name, behind that of the plugin.
func (s *statement) path() string {
	if s.of == "" {
		return s.name
	}
	return s.of + " " + s.name
}

// MaxOctets is the maximum size of a Corefile, which is larger than a ConfigMap.
const MaxOctets = 4 << 20

var errLong = errors.New("longer than 4 MiB")

// parse reads the server blocks of a Corefile.
func parse(path string, data []byte) (blocks []block, err error) {
	if len(data) > MaxOctets {
		return nil, &errAt{"corefile", path, 1, errLong}
	}
	// The parser panics when a file that is imported can't be read to its end.
	defer func() {
		if failed, is := recover().(error); is {
			blocks, err = nil, fmt.Errorf("corefile %s: %w", path, failed)
		}
	}()
	// What it says of imports is a note, see emptyImports.
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

// parserError is what the parser says, as we say it.
func parserError(path string, err error) error {
	m := parserMessage.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("corefile %s: %w", path, err)
	}
	line, _ := strconv.Atoi(m[2])
	return &errAt{"corefile", cmp.Or(m[1], path), line, errors.New(strings.ToLower(m[3][:min(1, len(m[3]))]) + m[3][min(1, len(m[3])):])}
}

// statements are the uses of one plugin, from their tokens.
func statements(path string, tokens []caddyfile.Token) (all []statement) {
	d := caddyfile.NewDispenserTokens(path, tokens)
	for d.Next() {
		s := statement{file: d.File(), line: d.Line(), name: d.Val(), args: d.RemainingArgs()}
		for d.NextBlock() {
			o := statement{file: d.File(), line: d.Line(), of: s.name, name: d.Val(), args: d.RemainingArgs()}
			s.options = append(s.options, o)
		}
		all = append(all, s)
	}
	return all
}

// linesOfKeys returns the lines on which words begin a line of a file: the parser
// forgets those of the keys of server blocks.
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

// variable is one of the environment, as the parser has them.
var variable = regexp.MustCompile(`\{\$[^}]+\}|\{%[^%]+%\}`)

// imported are the files that an import in the file at path names; none when it
// names a snippet.
func imported(path, pattern string) []string {
	pattern = variable.ReplaceAllStringFunc(pattern, func(v string) string { return os.Getenv(strings.Trim(v, "{$%}")) })
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(path), pattern)
	}
	files, _ := filepath.Glob(pattern)
	return files
}

// emptyImports notes the patterns of imports that no file matches.
func emptyImports(path string, data []byte) (notes []Note) {
	for d := caddyfile.NewDispenser(path, bytes.NewReader(data)); d.Next(); {
		if d.Val() == "import" && d.NextArg() && strings.ContainsAny(d.Val(), "*?") && len(imported(path, d.Val())) == 0 {
			notes = append(notes, Note{path, d.Line(), "import", Done, "no file matches " + d.Val()})
		}
	}
	return notes
}

// maxImports is how deep files may import files when their content is read.
const maxImports = 16

// Content is the text of a Corefile and of the files that it imports: where it
// is the same, the Corefile means the same, but for variables of the
// environment.
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
		for _, file := range imported(path, d.Val()) {
			data, err := os.ReadFile(file)
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
