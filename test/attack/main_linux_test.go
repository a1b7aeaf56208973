package attack

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/program"
)

var (
	duration = flag.Duration("time", 2*time.Second, "how long each attack takes")
	other    = flag.String("program", "", "attack this `FILE` instead of a build of the working tree")
)

// portolan is the program.
var portolan string

// inside is the environment variable that holds the path of the program for the process in
// the network namespace.
const inside = "PORTOLAN_ATTACK"

// TestMain runs the tests in a network namespace of their own, in which only loopback is.
func TestMain(m *testing.M) {
	if portolan = os.Getenv(inside); portolan != "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Getuid() != 0 {
		fmt.Println("skipped: a network namespace and a memory limit of its own need root")
		os.Exit(0)
	}
	flag.Parse()
	status, err := rerun()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// rerun runs this test program in a network namespace, and returns its exit status.
func rerun() (status int, err error) {
	ctx, stop := contextOfBuild()
	defer stop()
	file := *other
	if file == "" {
		if file, err = program.Build(ctx, program.Options{}); err != nil {
			return 1, err
		}
	}
	return namespace.Isolate(inside + "=" + file)
}

// prepare brings loopback up and allows as many open files as possible.
func prepare() error {
	if err := namespace.IP("link set lo up"); err != nil {
		return err
	}
	const files = 60_000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, files)
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}
