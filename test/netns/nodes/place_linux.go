package nodes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Place is a network namespace and a mount namespace, held by one thread.
type Place struct {
	work chan func()
	net  *os.File
}

// newPlace makes a place that forwards packets and whose loopback is up.
func newPlace() (*Place, error) {
	p := &Place{work: make(chan func())}
	ready := make(chan error)
	go func() {
		// The thread ends with the goroutine, and what it started with it.
		runtime.LockOSThread()
		err := p.enter()
		ready <- err
		if err != nil {
			return
		}
		for do := range p.work {
			do()
		}
	}()
	return p, <-ready
}

func (p *Place) enter() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if p.net, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	return up("lo")
}

// Do runs a function in the place; sockets that it opens stay there. It must not call
// Do of the same place.
func (p *Place) Do(do func() error) error {
	done := make(chan error)
	p.work <- func() { done <- do() }
	return <-done
}

// close ends the place's thread.
func (p *Place) close() {
	close(p.work)
	p.net.Close()
}

// ownEtc gives the place an /etc of its own, with these files only.
func (p *Place) ownEtc(files map[string]string) error {
	return p.Do(func() error {
		if err := unix.Mount("tmpfs", "/etc", "tmpfs", 0, "mode=755"); err != nil {
			return os.NewSyscallError("mount", err)
		}
		return writeEtc(files)
	})
}

func writeEtc(files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile("/etc/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Rules runs a script of nft in the place.
func (p *Place) Rules(script string) error {
	_, err := p.nft(script, "-f", "-")
	return err
}

func (p *Place) nft(in string, args ...string) (out []byte, err error) {
	return out, p.Do(func() error {
		cmd := exec.Command("nft", args...)
		cmd.Stdin = strings.NewReader(in)
		if out, err = cmd.Output(); err != nil {
			return fmt.Errorf("nft: %w: %s%s", err, complaint(err), in)
		}
		return nil
	})
}

// complaint returns a command's standard error.
func complaint(err error) string {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// start starts a command in the place; it dies with this process.
func (p *Place) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return p.Do(cmd.Start)
}
