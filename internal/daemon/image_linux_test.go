package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDropImage: what was read of the program's file and is not used is given back,
// and the program goes on.
func TestDropImage(t *testing.T) {
	before := residentFile(t)
	dropImage()
	if after := residentFile(t); after >= before {
		t.Errorf("%d KiB of files are resident, %d before", after, before)
	}
}

// residentFile is how much of files is resident, in KiB, see proc_pid_status(5).
func residentFile(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nRssFile:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestImageMappings: those of the program, unless something was or can be written, or
// that is not told.
func TestImageMappings(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 123 /usr/bin/program
Rss:                1024 kB
Anonymous:             0 kB
Swap:                  0 kB
SwapPss:               0 kB
VmFlags: rd ex mr mw me sd
00500000-00600000 r--p 00100000 fe:00 123 /usr/bin/program
Anonymous:             4 kB
Swap:                  0 kB
00600000-00700000 rw-p 00200000 fe:00 123 /usr/bin/program
Anonymous:             0 kB
Swap:                  0 kB
00700000-00800000 r--p 00200000 fe:00 123 /usr/bin/program
Anonymous:             0 kB
Swap:                  0 kB
00800000-00900000 r--p 00300000 fe:00 123 /usr/bin/program
Anonymous:             0 kB
Swap:                 64 kB
00900000-00a00000 r--p 00400000 fe:00 123 /usr/bin/program
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 124 /usr/lib/libc.so.6
Anonymous:             0 kB
Swap:                  0 kB
7f0000200000-7f0000300000 r--p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
Anonymous:             0 kB
Swap:                  0 kB
`
	want := []mapping{{0x400000, 0x500000}, {0x700000, 0x800000}}
	if diff := cmp.Diff(want, imageMappings(strings.NewReader(smaps), "/usr/bin/program"), cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
