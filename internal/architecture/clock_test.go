package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wallClock are functions of package time, and methods of Time and of files, whose times are those of the node's clock
// or of another one, or that strip a Time of its monotonic clock (https://pkg.go.dev/time#hdr-Monotonic_Clocks).
var wallClock = []string{
	"time.Unix", "time.UnixMilli", "time.UnixMicro", "time.Date", "time.Parse", "time.ParseInLocation",
	"Unix", "UnixMilli", "UnixMicro", "UnixNano", "Round", "Truncate", "UTC", "Local", "In", "AddDate", "ModTime",
}

// wallClockUses are where packages of policies and of gateways may call them, and why no verdict, and no timeout, depends
// on it.
var wallClockUses = []struct{ file, function, why string }{
	{"cni/socket/socket.go", "time.Unix", "any time that is over interrupts a read"},
	{"policy/droplog/droplog.go", "UTC", "lines of the log have the time of the node's clock"},
	{"policy/fqdn/program.go", "Truncate", "of a Duration"},
	{"gateway/accesslog/format.go", "UTC", "lines of the log have the time of the node's clock"},
	{"gateway/app/app.go", "time.Unix", "any time that is over interrupts a write"},
	{"gateway/app/metrics.go", "time.Unix", "metrics of causes that other machines noted, and of certificates"},
	{"gateway/app/metrics.go", "Unix", "metrics have the time at which a certificate ends"},
	{"gateway/datagram/session.go", "time.Unix", "any time that is over interrupts a read"},
	{"gateway/datagram/socket.go", "time.Unix", "any time that is over interrupts a read"},
	{"gateway/h1/body.go", "time.Unix", "any time that is over interrupts a read"},
	{"gateway/h1/pace.go", "time.Unix", "any time that is over interrupts a read"},
	{"gateway/h1/conn.go", "time.Unix", "any time that is over interrupts a read"},
	{"gateway/h1/h1.go", "Unix", "the field Date has the time of the node's clock"},
	{"gateway/h1/h1.go", "UTC", "the field Date has the time of the node's clock"},
	{"gateway/proxy/persistence.go", "Unix", "tokens of sessions have the time at which they began, for all gateways"},
	{"gateway/proxy/persistence.go", "time.Unix", "as above"},
	{"gateway/status/judge.go", "UTC", "a condition has the time at which a certificate ended"},
	{"gateway/status/apply.go", "Unix", "conditions have the time of the node's clock"},
	{"gateway/tracing/export.go", "UnixNano", "spans have the time of the node's clock"},
}

// TestMonotonicTime: a jump of the node's clock changes no verdict and ends no request, since all times that packages of
// policies, what programs the kernel for them, and packages of gateways compare are of the monotonic clock.
func TestMonotonicTime(t *testing.T) {
	used := make([]bool, len(wallClockUses))
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/internal/")
		if name != "support/programmer" && !strings.HasPrefix(name, "cni/") && !strings.HasPrefix(name, "policy/") && !strings.HasPrefix(name, "gateway/") {
			continue
		}
		for _, file := range p.GoFiles {
			for _, function := range wallClockIn(t, filepath.Join(p.Dir, file)) {
				i := slices.IndexFunc(wallClockUses, func(u struct{ file, function, why string }) bool {
					return u.file == path.Join(name, file) && u.function == function
				})
				if i < 0 {
					t.Errorf("%s calls %s: the node's clock may jump", path.Join(name, file), function)
					continue
				}
				used[i] = true
			}
		}
	}
	for i, u := range wallClockUses {
		if !used[i] {
			t.Errorf("%s may call %s (%s) and does not", u.file, u.function, u.why)
		}
	}
}

// wallClockIn returns which of wallClock a file calls.
func wallClockIn(t *testing.T, file string) (functions []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := called.Sel.Name
		if of, ok := called.X.(*ast.Ident); ok && of.Name == "time" {
			name = "time." + name
		}
		if slices.Contains(wallClock, name) {
			functions = append(functions, name)
		}
		return true
	})
	return functions
}
