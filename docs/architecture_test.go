package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeSpan is text between backquotes.
var codeSpan = regexp.MustCompile("`([^`]+)`")

// TestArchitectureNamesExist: docs/architecture.md names files and directories
// that exist, and each step of its walks, a table row of a file and functions,
// names functions that the file declares.
func TestArchitectureNamesExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for line := range strings.Lines(string(page)) {
		spans := codeSpan.FindAllStringSubmatch(line, -1)
		for _, span := range spans {
			if isPath(span[1]) {
				if _, err := os.Stat(filepath.Join("..", span[1])); err != nil {
					t.Errorf("docs/architecture.md names %s: %v", span[1], err)
				}
			}
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], ".go`") {
			continue
		}
		steps++
		file := codeSpan.FindStringSubmatch(cells[1])[1]
		declared := functions(t, filepath.Join("..", file))
		for _, span := range codeSpan.FindAllStringSubmatch(cells[2], -1) {
			if !declared[span[1]] {
				t.Errorf("docs/architecture.md: %s declares no function %s", file, span[1])
			}
		}
	}
	if steps < 20 {
		t.Errorf("docs/architecture.md has %d steps that name a file and functions, want at least 20", steps)
	}
}

// isPath reports whether text is a path in the repository.
func isPath(text string) bool {
	first, _, ok := strings.Cut(text, "/")
	return ok && !strings.ContainsAny(text, "*{ ") && strings.Contains(" bench build cmd deploy docs internal test testdata ", " "+first+" ")
}

// functions are the names of the functions that a file declares: those of methods
// with their type, such as Server.Run.
func functions(t *testing.T, file string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	names := make(map[string]bool)
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = receiver(f.Recv.List[0].Type) + "." + name
		}
		names[name] = true
	}
	return names
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
