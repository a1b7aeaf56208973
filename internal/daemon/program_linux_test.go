package daemon

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestForgetProgram checks that pages of the program's file are not resident any more, and that the program goes on.
func TestForgetProgram(t *testing.T) {
	resident := func() (kib int) {
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
	before := resident()
	forgetProgram()
	if after := resident(); after > before*3/4 {
		t.Errorf("%d KiB of files are resident, %d before", after, before)
	}
}

// TestUnchanged checks which mappings may be forgotten: not those that the process can write, or has changed.
func TestUnchanged(t *testing.T) {
	const smaps = `00400000-00401000 r--p 00000000 fd:00 17   /usr/bin/portolan
Size:                  4 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
00401000-00403000 r-xp 00001000 fd:00 17   /usr/bin/portolan
Anonymous:             0 kB
00403000-00404000 r--p 00003000 fd:00 17   /usr/bin/portolan
Anonymous:             4 kB
00404000-00405000 rw-p 00004000 fd:00 17   /usr/bin/portolan
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fd:00 18   /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
Anonymous:             0 kB
`
	got := unchanged([]byte(smaps), "/usr/bin/portolan")
	if want := []mapping{{0x400000, 0x401000}, {0x401000, 0x403000}}; !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}
