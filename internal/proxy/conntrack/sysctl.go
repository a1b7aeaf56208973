package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Settings are settings of the kernel that kube-proxy makes
// (KubeProxyConntrackConfiguration). What is zero stays as it is in the kernel.
type Settings struct {
	// MaxPerCore is how many entries there may be for each CPU; Min is the least number. Min
	// counts only with MaxPerCore.
	MaxPerCore, Min int
	// TCPEstablished and TCPCloseWait are how long an idle connection keeps its entry.
	TCPEstablished, TCPCloseWait time.Duration
	// TCPBeLiberal has packets outside of the window belong to their connection.
	TCPBeLiberal bool
	// UDP is how long a flow without answer keeps its entry, UDPStream one with answers.
	UDP, UDPStream time.Duration
}

// DefaultSettings are kube-proxy's. CLOSE_WAIT is longer than the kernel's minute because a
// connection that is closed on one side only may be used on as long as the other side sends.
func DefaultSettings() Settings {
	return Settings{MaxPerCore: 32 << 10, Min: 128 << 10, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}
}

// maxEntries is the largest number that MaxPerCore has on machines with many CPUs.
const maxEntries = 1 << 20

// entriesPerBucket is how many entries there are at most for each bucket of the hash table.
const entriesPerBucket = 4

// Sysctl is a setting of the kernel.
type Sysctl struct {
	// File has the value.
	File  string
	Value int
	// AtLeast: a larger value stays.
	AtLeast bool
}

// String returns the setting as in "net.netfilter.nf_conntrack_max=131072".
func (s Sysctl) String() string {
	name := s.File
	if key, ok := strings.CutPrefix(s.File, procSys); ok {
		name = strings.ReplaceAll(key, "/", ".")
	}
	return name + "=" + strconv.Itoa(s.Value)
}

const (
	procSys  = "/proc/sys/"
	sysctls  = procSys + "net/netfilter/nf_conntrack_"
	hashSize = "/sys/module/nf_conntrack/parameters/hashsize"
	// sysctlLoose has the kernel track connections whose beginning it did not see.
	sysctlLoose = sysctls + "tcp_loose"
)

// Sysctls returns the settings of the kernel for a machine with the number of CPUs, in the
// order in which kube-proxy makes them.
func (s Settings) Sysctls(cpus int) (all []Sysctl) {
	if n := s.entries(cpus); n > 0 {
		all = append(
			all, Sysctl{File: sysctls + "max", Value: n},
			Sysctl{File: hashSize, Value: n / entriesPerBucket, AtLeast: true},
		)
	}
	timeout := func(name string, d time.Duration) {
		if d > 0 {
			seconds := int((d + time.Second - 1) / time.Second)
			all = append(all, Sysctl{File: sysctls + name, Value: seconds})
		}
	}
	timeout("tcp_timeout_established", s.TCPEstablished)
	timeout("tcp_timeout_close_wait", s.TCPCloseWait)
	if s.TCPBeLiberal {
		all = append(all, Sysctl{File: sysctls + "tcp_be_liberal", Value: 1})
	}
	timeout("udp_timeout", s.UDP)
	timeout("udp_timeout_stream", s.UDPStream)
	return all
}

// entries returns how many entries there may be; 0 leaves the kernel's limit.
func (s Settings) entries(cpus int) int {
	if s.MaxPerCore <= 0 {
		return 0
	}
	if scaled := s.MaxPerCore * cpus; scaled > maxEntries {
		return maxEntries
	} else if scaled > s.Min {
		return scaled
	}
	return s.Min
}

// Apply makes settings that the kernel does not have yet. Those that may not be made, as in a
// container without privileges, or that the kernel does not have, are left out with one warning
// for all.
func Apply(all []Sysctl, log *slog.Logger) error { return systemFiles.apply(all, log) }

// Require makes settings as Apply does, and returns an error if one is left out.
func Require(all []Sysctl, log *slog.Logger) error {
	left, err := systemFiles.setAll(all, log)
	if left != nil {
		err = errors.Join(err, fmt.Errorf("set %s: %w", strings.Join(left.settings, ", "), left.reason))
	}
	return err
}

// leftOut are settings that could not be made, and why the last one could not.
type leftOut struct {
	settings []string
	reason   error
}

// files are the kernel's.
type files struct {
	read  func(name string) ([]byte, error)
	write func(name string, data []byte) error
}

var systemFiles = files{os.ReadFile, func(name string, data []byte) error { return os.WriteFile(name, data, 0) }}

func (f files) apply(all []Sysctl, log *slog.Logger) error {
	left, err := f.setAll(all, log)
	if left != nil {
		log.Warn("cannot change settings of connection tracking; make them in the node's /etc/sysctl.d, "+
			"or set the keys of proxy.conntrack to 0", "settings", left.settings, "error", left.reason)
	}
	return err
}

// setAll makes settings. left are those that may not be made, nil if there are none, and err is
// why others were not.
func (f files) setAll(all []Sysctl, log *slog.Logger) (left *leftOut, err error) {
	for _, s := range all {
		failed := f.set(s, log)
		switch {
		case failed == nil:
		case errors.Is(failed, fs.ErrPermission), errors.Is(failed, syscall.EROFS), errors.Is(failed, fs.ErrNotExist):
			if left == nil {
				left = new(leftOut)
			}
			left.settings, left.reason = append(left.settings, s.String()), failed
		default:
			err = errors.Join(err, fmt.Errorf("set %s: %w", s, failed))
		}
	}
	return left, err
}

func (f files) set(s Sysctl, log *slog.Logger) error {
	before := "unknown"
	if data, err := f.read(s.File); err == nil {
		before = strings.TrimSpace(string(data))
		if n, err := strconv.Atoi(before); err == nil && (n == s.Value || s.AtLeast && n > s.Value) {
			return nil
		}
	}
	if err := f.write(s.File, []byte(strconv.Itoa(s.Value))); err != nil {
		return err
	}
	log.Info("changed a setting of connection tracking", "setting", s.String(), "before", before)
	return nil
}

// CPUs returns the number of CPUs that the machine uses, more than which this process may have.
func CPUs() int {
	if text, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if n, err := countCPUs(strings.TrimSpace(string(text))); err == nil {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs counts the CPUs in a list like "0-3,8" (kernel documentation, "cputopology").
func countCPUs(list string) (n int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		first, err := strconv.Atoi(from)
		if err != nil {
			return 0, err
		}
		last, err := strconv.Atoi(to)
		if err != nil {
			return 0, err
		}
		n += last - first + 1
	}
	if n < 1 {
		return 0, fmt.Errorf("%q has no CPU", list)
	}
	return n, nil
}

// picksUpTCP reports whether a packet in the middle of a connection without entry makes one.
func picksUpTCP() bool {
	value, err := os.ReadFile(sysctlLoose)
	return err == nil && strings.TrimSpace(string(value)) != "0"
}
