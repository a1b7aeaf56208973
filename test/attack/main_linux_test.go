package attack

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	if err := rerun(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rerun runs this test program in a network namespace.
func rerun() error {
	ctx, stop := contextOfBuild()
	defer stop()
	file := *other
	if file == "" {
		var err error
		if file, err = program.Build(ctx, program.Options{}); err != nil {
			return err
		}
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"="+file)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// prepare brings loopback up and allows as many open files as possible.
func prepare() error {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("loopback: %w: %s", err, out)
	}
	const files = 60_000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, files)
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}
