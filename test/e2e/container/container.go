//go:build linux

// Package container runs a program as a container runtime runs that of a Pod:
// as the first process of its own PID namespace, with a root that can't be
// written to and the Pod's volumes in it, in the Pod's network namespace, as the
// image's user, and with the capabilities that the Pod's securityContext names.
//
// It does what runtimes do by the OCI runtime specification 1.2, config.md
// (root, mounts, process) and config-linux.md (namespaces). There are no
// cgroups, no seccomp filter and no /dev.
//
// The processes begin as the program that calls Process, so that one must call
// Main first.
package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/namespace"
)

// ErrUnable is the error that Check wraps.
var ErrUnable = errors.New("container: can't be run here")

// Check reports whether containers can run here: the process must be root,
// with unshare (Debian: util-linux), ip (iproute2) and setcap (libcap2-bin), and
// the directory of temporary files must not be mounted nosuid: file capabilities
// would not count.
func Check() error {
	for _, tool := range []string{"unshare", "ip", "setcap"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %w", ErrUnable, err)
		}
	}
	mount := exec.Command("unshare", "--pid", "--mount", "--net", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
	if out, err := mount.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %w: %s", ErrUnable, err, out)
	}
	var system unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &system); err != nil {
		return &fs.PathError{Op: "statfs", Path: os.TempDir(), Err: err}
	}
	if system.Flags&unix.ST_NOSUID != 0 {
		return fmt.Errorf("%w: %s is mounted nosuid", ErrUnable, os.TempDir())
	}
	return nil
}

// Config describes a container.
type Config struct {
	// Root is the directory of the image's files. Directories and
	// files that Mounts need are made in it. The file system must not be mounted
	// nosuid: file capabilities would not count.
	Root   string
	Mounts []Mount // in this order
	Args   []string
	Env    []string // NAME=VALUE
	User   int      // and group; it is in no other
	// Capabilities are those that the process may have, as Kubernetes spells
	// them. A user other than 0 keeps those that the program's file has, too.
	Capabilities []string
	// NoNewPrivileges stands for "allowPrivilegeEscalation: false".
	NoNewPrivileges bool
	Network         *Network // it is in the Pod's
}

// Mount is a directory or file of the host that can be read in the container.
type Mount struct {
	Source, Target string
	Writable       bool // it can be written, too
	// Propagated has what is mounted below the source later appear, too: mountPropagation HostToContainer.
	Propagated bool
}

// capabilities are the numbers of the supported capabilities.
var capabilities = map[string]int{"NET_ADMIN": unix.CAP_NET_ADMIN, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE}

// The first arguments of the processes of a container.
const (
	supervise = "container-supervise"
	enter     = "container-enter"
)

// plan is a Config as the container's process receives it.
type plan struct {
	Config
	NetworkFile string
	Keep        uint32 // a set of capabilities
}

// Process returns a process that runs the container, which ends with it.
// SIGTERM reaches the container's. Other signals end unshare, and so all of it.
func (c Config) Process() (*process.Process, error) {
	p := plan{Config: c}
	p.Network = nil
	if c.Network != nil {
		p.NetworkFile = c.Network.pod.Path()
	}
	for _, name := range c.Capabilities {
		number, ok := capabilities[name]
		if !ok {
			return nil, fmt.Errorf("container: capability %s is not known", name)
		}
		p.Keep |= 1 << number
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &process.Process{
		Path: "unshare",
		Args: []string{"--pid", "--fork", "--kill-child", self, supervise, string(text)},
	}, nil
}

// Main runs the container if the program was started by Process, and returns at once
// otherwise.
func Main() {
	if len(os.Args) != 3 {
		return
	}
	switch os.Args[1] {
	case supervise:
		os.Exit(runSupervisor(os.Args[2]))
	case enter:
		fmt.Fprintln(os.Stderr, runEnter(os.Args[2]))
		os.Exit(1)
	}
}

// runSupervisor runs the container's process and gives its exit status. It is
// the first of a PID namespace around the container's: whatever happens, with
// it all of them end.
func runSupervisor(text string) int {
	// It comes to the whole process group, and is the container's business.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
	cmd := exec.Command(os.Args[0], enter, text)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runEnter becomes the container's program, or returns why it can't. All that
// belongs to a thread is done on the one that becomes it.
func runEnter(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	if err := (Surroundings{NetworkFile: p.NetworkFile, Root: p.Root, Mounts: p.Mounts}).Enter(); err != nil {
		return err
	}
	if err := p.dropPrivileges(); err != nil {
		return err
	}
	return &fs.PathError{Op: "exec", Path: p.Args[0], Err: unix.Exec(p.Args[0], p.Args, p.Env)}
}

// Surroundings are the network and the files of a container.
type Surroundings struct {
	NetworkFile string // of the network namespace; empty is that of the process
	// Root is the directory of the image's files. Directories and files that Mounts need
	// are made in it.
	Root     string
	Writable bool    // the root is
	Mounts   []Mount // in this order
}

// Enter locks the goroutine to its thread, moves that into the network, and makes the files the only
// ones that there are for the process, which must have a mount namespace of its own and be the first
// of its PID namespace: /proc shows that one.
func (s Surroundings) Enter() error {
	runtime.LockOSThread()
	if s.NetworkFile != "" {
		if err := namespace.Enter(s.NetworkFile); err != nil {
			return err
		}
	}
	// What is mounted here stays here. What is mounted outside comes in until it is private.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SLAVE); err != nil {
		return err
	}
	if err := mount(s.Root, s.Root, "", unix.MS_BIND); err != nil {
		return err
	}
	if err := mount("", s.Root, "", unix.MS_PRIVATE); err != nil {
		return err
	}
	proc := filepath.Join(s.Root, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		return err
	}
	if err := mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
		return err
	}
	var mounted []string
	if !s.Writable {
		mounted = append(mounted, s.Root)
	}
	for _, m := range s.Mounts {
		target := filepath.Join(s.Root, m.Target)
		if err := m.bind(target); err != nil {
			return err
		}
		if !m.Writable {
			mounted = append(mounted, target)
		}
	}
	for _, target := range mounted { // now that nothing is to be made in them
		if err := mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY); err != nil {
			return err
		}
	}
	if err := os.Chdir(s.Root); err != nil {
		return err
	}
	// With the same directory twice, the old root is on top of the new one; see
	// pivot_root(2).
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return os.Chdir("/")
}

// bind mounts the source at a target.
func (m Mount) bind(target string) error {
	if err := makeMountPoint(m.Source, target); err != nil {
		return err
	}
	if m.Propagated {
		return mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC) // with what is mounted already
	}
	if err := mount(m.Source, target, "", unix.MS_BIND); err != nil {
		return err
	}
	return mount("", target, "", unix.MS_PRIVATE)
}

func mount(source, target, kind string, flags uintptr) error {
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		return &fs.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}

func makeMountPoint(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// dropPrivileges leaves this thread the user and the capabilities that the
// program shall have: in the bounding, permitted and effective sets, and not in
// the inheritable and ambient ones, as containerd and CRI-O do.
func (p *plan) dropPrivileges() error {
	for number := range lastCapability() + 1 {
		if p.Keep&(1<<number) != 0 && number < 32 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	// Those of the syscall package change all threads, which have other
	// capabilities than this one by now.
	id := uintptr(p.User)
	for _, call := range []struct {
		name      string
		number    uintptr
		arguments [3]uintptr
	}{
		{"setgroups", unix.SYS_SETGROUPS, [3]uintptr{}},
		{"setresgid", unix.SYS_SETRESGID, [3]uintptr{id, id, id}},
		{"setresuid", unix.SYS_SETRESUID, [3]uintptr{id, id, id}},
	} {
		if _, _, err := unix.RawSyscall(call.number, call.arguments[0], call.arguments[1], call.arguments[2]); err != 0 {
			return os.NewSyscallError(call.name, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	sets := [2]unix.CapUserData{{Effective: p.Keep, Permitted: p.Keep}}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	if p.NoNewPrivileges {
		return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	}
	return nil
}

func lastCapability() int {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return unix.CAP_LAST_CAP
	}
	last, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return unix.CAP_LAST_CAP
	}
	return last
}
