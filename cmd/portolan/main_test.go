package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"portolan.dev/portolan/test/program"
)

// noRaceSleep is a GORACE setting that disables the race detector's sleep of a second at
// exit.
const noRaceSleep = "atexit_sleep_ms=0"

// TestMain installs main as the command portolan in PATH, for scripts and tests.
func TestMain(m *testing.M) {
	if err := os.Setenv("GORACE", noRaceSleep); err != nil {
		panic(err)
	}
	testscript.Main(m, commands)
}

// commands are the programs that tests run.
var commands = map[string]func(){"portolan": main}

// TestScripts runs the scripts in testdata/script. Each script's directory contains the
// manifests of testdata/shop. Scripts use a portolan without the race detector, which
// would make each of some 400 starts five times as long; the tests of servers use it. A
// command that hangs ends with the timeout of go test. $PROGRAM is the file of portolan.
// Additional commands:
//
//	status N COMMAND...         run it, want exit status N
//	refused MESSAGE COMMAND...  want exit status 2 and this one line on stderr
//	prints FILE                 compare stdout; SERIAL stands for a zone's serial
//	occupy NAME                 listen on a free port of 127.0.0.1; set $NAME to its address
func TestScripts(t *testing.T) {
	file, err := program.Build(t.Context(), program.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Dir(file) + string(os.PathListSeparator) + os.Getenv("PATH")
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", path)
			env.Setenv("PROGRAM", file)
			for name, dir := range map[string]string{"shop": "testdata/shop", "charts": "../../examples/charts"} {
				if err := os.CopyFS(filepath.Join(env.WorkDir, name), os.DirFS(dir)); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": scriptStatus, "refused": scriptRefused, "prints": scriptPrints, "occupy": scriptOccupy,
		},
	})
}

func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	wantStatus(ts, want, args[1:])
}

func wantStatus(ts *testscript.TestScript, want int, command []string) {
	err := ts.Exec(command[0], command[1:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%q: exit status %d, want %d", command, got, want)
	}
}

func scriptRefused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refused MESSAGE COMMAND...")
	}
	wantStatus(ts, 2, args[1:])
	if got, want := ts.ReadFile("stderr"), "portolan: "+args[0]+"\n"; got != want {
		ts.Fatalf("%q: stderr\n got %q\nwant %q", args[1:], got, want)
	}
	if got := ts.ReadFile("stdout"); got != "" {
		ts.Fatalf("%q: stdout %q, want none", args[1:], got)
	}
}

// serial matches the serial in a SOA record.
var serial = regexp.MustCompile(`( hostmaster\.\S+) \d+ `)

func scriptPrints(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: prints FILE")
	}
	got := serial.ReplaceAllString(ts.ReadFile("stdout"), "$1 SERIAL ")
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("stdout\n%s\nwant %s\n%s", got, args[0], want)
	}
}

func scriptOccupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupy NAME")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}
