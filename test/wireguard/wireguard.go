//go:build linux

// Package wireguard makes devices of WireGuard in user space, so that tests need no module of the kernel. They are
// configured as the kernel's are, but by a socket below /run.
package wireguard

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// Open makes a device, which ends with the process. The process must have mount and network namespaces of its own:
// Open covers /run.
func Open(name string, mtu int) error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	link, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return err
	}
	d := device.NewDevice(link, conn.NewDefaultBind(), &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf:   func(format string, args ...any) { fmt.Fprintf(os.Stderr, "wireguard: "+format+"\n", args...) },
	})
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return err
	}
	l, err := ipc.UAPIListen(name, file)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go d.IpcHandle(c)
		}
	}()
	return nil
}
