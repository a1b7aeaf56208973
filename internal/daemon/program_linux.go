package daemon

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram unmaps the pages of the program's file: a start reads many that nothing reads again. One that is
// read again is mapped again from the page cache (madvise(2), MADV_DONTNEED). Parts of the file that this process
// changed stay.
func forgetProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // without /proc, memory is as it was
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range unchanged(maps, program) {
		// It fails for memory that is locked, which then stays.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
	}
}

// mapping is a part of the address space.
type mapping struct{ begin, end uintptr }

// unchanged returns the mappings of a file that are not writable and have no page of their own (proc_pid_smaps(5)).
func unchanged(smaps []byte, file string) (all []mapping) {
	var at mapping
	of := false
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	for lines.Scan() {
		line := lines.Text()
		var m mapping
		var access, offset, device string
		var inode uint64
		if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %d", &m.begin, &m.end, &access, &offset, &device, &inode); n == 6 {
			at, of = m, strings.HasSuffix(line, " "+file) && !strings.Contains(access, "w")
			continue
		}
		if of && strings.HasPrefix(line, "Anonymous:") {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "0" {
				all = append(all, at)
			}
		}
	}
	return all
}
