package daemon

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropImage takes the pages of the program's file out of this process. Those that
// are used come back from the page cache as they are, 16 at a touch. Most do not:
// initialization, above all that of client-go's types, and loading touched them. It
// does nothing where it may not look.
func dropImage() {
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for _, m := range imageMappings(maps, program) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED) // what fails stays
	}
}

// mapping is a part of the address space.
type mapping struct{ start, end uintptr }

// imageMappings are those of a program's file in which all is as it is in the file:
// nothing can be written there, and nothing was, as a dynamic linker does, be it in
// memory or swapped out (see proc_pid_smaps(5)).
func imageMappings(smaps io.Reader, program string) (all []mapping) {
	var m mapping
	var inside bool // one of the program, in which nothing written was seen
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 0 && !strings.HasSuffix(fields[0], ":"): // START-END PERMISSIONS OFFSET DEVICE INODE PATH
			inside = len(fields) == 6 && fields[5] == program && !strings.Contains(fields[1], "w")
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.start, &m.end); err != nil {
				inside = false
			}
		case len(fields) > 1 && fields[0] == "Anonymous:":
			inside = inside && fields[1] == "0"
		case inside && len(fields) > 1 && fields[0] == "Swap:" && fields[1] == "0": // which comes later
			all = append(all, m)
		}
	}
	return all
}
