// Package memgroup reads how much memory the control group of the process uses (Linux, Control Group v2, "Memory";
// cgroup-v1/memory.rst).
package memgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Group is a control group with a memory limit.
type Group struct {
	dir    string
	limit  int64
	used   string
	extra  string // what is not in used: the memory of sockets, in version 1; empty without
	unused string // the key in memory.stat of what the kernel takes back before it ends a process
}

// ErrNoLimit means that the process has no control group with a memory limit.
var ErrNoLimit = errors.New("no control group with a memory limit")

// Own returns the group of the process. The error is ErrNoLimit if there is none that has a limit.
func Own() (*Group, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, ErrNoLimit
	}
	return find("/sys/fs/cgroup", string(groups))
}

// find returns the group of a process whose /proc/PID/cgroup has these lines.
func find(root, groups string) (*Group, error) {
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		var own Group
		limit := "memory.limit_in_bytes"
		switch {
		case fields[0] == "0":
			own = Group{dir: root, used: "memory.current", unused: "inactive_file"}
			limit = "memory.max"
		case fields[1] == "memory":
			own = Group{
				dir: filepath.Join(root, "memory"), used: "memory.usage_in_bytes",
				extra: "memory.kmem.tcp.usage_in_bytes", unused: "total_inactive_file",
			}
		default:
			continue
		}
		// In a container without a cgroup namespace the path is the host's, and its group is at the root.
		for _, dir := range []string{filepath.Join(own.dir, fields[2]), own.dir} {
			if n, ok := number(filepath.Join(dir, limit)); ok && n < noLimit {
				own.dir, own.limit = dir, n
				return &own, nil
			}
		}
	}
	return nil, ErrNoLimit
}

// noLimit is what version 1 has in place of a limit, or less.
const noLimit = 1 << 60

// number reads a file with a number.
func number(file string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// Limit returns the memory limit in octets.
func (g *Group) Limit() int64 { return g.limit }

// Used returns how many octets are in use, and cannot be taken back from files; 0 if that is not known.
func (g *Group) Used() int64 {
	used, _ := number(filepath.Join(g.dir, g.used))
	if g.extra != "" {
		sockets, _ := number(filepath.Join(g.dir, g.extra))
		used += sockets
	}
	stat, _ := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		if rest, ok := strings.CutPrefix(line, g.unused+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			used -= n
		}
	}
	return max(0, used)
}
