package attack

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
)

// recordText returns the file of a record, as package ipam has it.
func recordText(t *testing.T, format, id, addr string) []byte {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Appendf(nil, "portolan addresses %s\n"+
		`{"boot":"%s","containerID":"%s","ifname":"eth0","network":"portolan","device":"ptl000000000000","addresses":[%s],`+
		`"created":"2026-01-01T00:00:00Z"}`, format, strings.TrimSpace(string(boot)), id, addr)
	sum := sha256.Sum256(text)
	return append(text, sum[:]...)
}

// TestRecords: an agent starts with whatever is where its records should be, gives no address twice, and sets aside
// what it cannot read.
func TestRecords(t *testing.T) {
	n := newNetworkNode(t, networkCluster)
	records := attach.LinkRecords(n.socket)
	if err := os.MkdirAll(records, 0o700); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(records, name) }
	good := recordText(t, "1", "a", `"10.244.0.7"`)
	for name, text := range map[string][]byte{
		"a,eth0.record": good, "b,eth0.record": good[:len(good)-40], "c,eth0.record": nil,
		"d,eth0.record": recordText(t, "9", "d", `"10.244.0.8"`), "e,eth0.record": good, // of another
		"f,eth0.record": recordText(t, "1", "f", `"10.244.0.7"`), "g,eth0.record": recordText(t, "1", "g", `""`),
		"h,eth0.record": recordText(t, "1", "h", `"::ffff:10.244.0.9"`), "i,eth0.record": recordText(t, "1", "../i", ""),
		"j,eth0.record.ended": good[:9], "k,eth0.record": recordText(t, "1", "k", `"192.0.2.1"`),
		"q,eth0.record": make([]byte, 2<<20), "not a record": {0}, "a.record": nil, ".record": nil, "l,eth0.record.new-1": nil,
	} {
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		syscall.Mkfifo(at("m,eth0.record"), 0o600), os.Mkdir(at("n,eth0.record"), 0o700),
		os.Symlink("/dev/zero", at("o,eth0.record")), os.Symlink("nowhere", at("p,eth0.record")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	n.start(t)
	t.Logf("it was ready after %s", time.Since(begin))
	n.mustServe(t, "with records of no use")
	n.wantDistinct(t, "10.244.0.7") // of a and f
	for _, name := range []string{"b", "c", "d", "e", "g", "h", "i", "j"} {
		if _, err := os.Stat(at(name + ",eth0.record.bad")); err != nil {
			t.Errorf("it is not set aside: %v", err)
		}
	}
	text, _ := os.ReadFile(n.log)
	for _, name := range []string{"b", "c", "d", "e", "g", "h", "i", "m", "n", "o", "p", "q"} {
		if !strings.Contains(string(text), name+",eth0.record") {
			t.Errorf("the log does not name %s,eth0.record", name)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// wantDistinct fails the test unless each of some Pods has addresses of its own, and none of them the one that is taken.
func (n *networkNode) wantDistinct(t *testing.T, taken string) {
	t.Helper()
	owners := map[string]string{taken: "a record"}
	for i := range 32 { // the pool starts with the lowest addresses
		r := n.pod(t, fmt.Sprint("distinct-", i))
		result, err := n.call(r)
		if err != nil {
			n.fatal(err.Error())
		}
		for _, a := range result.Addrs {
			addr, _, _ := strings.Cut(a.Address, "/")
			if owner, given := owners[addr]; given {
				t.Errorf("%s gets %s, the address of %s", r.Name, addr, owner)
			}
			owners[addr] = r.Name
		}
	}
}

// TestManyRecords: records of 100,000 sandboxes that have ended without their runtime saying so are read within the
// memory limit, and their addresses are free again.
func TestManyRecords(t *testing.T) {
	n := newNetworkNode(t, networkCluster)
	records := attach.LinkRecords(n.socket)
	if err := os.MkdirAll(records, 0o700); err != nil {
		t.Fatal(err)
	}
	const many = 100_000
	for i := range many {
		id := fmt.Sprintf("%064x", i)
		addrs := fmt.Sprintf(`"fd00:10:244::%x:%x"`, i>>16, i&0xffff)
		if i < 1<<16 { // all of the range: no Pod gets an address of IPv4 unless one is free again
			addrs += fmt.Sprintf(`,"10.244.%d.%d"`, i>>8, i&0xff)
		}
		text := recordText(t, "1", id, addrs)
		if err := os.WriteFile(filepath.Join(records, id+",eth0.record"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	n.start(t)
	t.Logf("it was ready after %s", time.Since(begin))
	n.mustServe(t, "with 100,000 records")
}

// TestFullDisk: where no record can be written, a Pod gets an error that says so, and those that have their network
// give it back.
func TestFullDisk(t *testing.T) {
	n := newNetworkNode(t, networkCluster)
	run := filepath.Dir(n.socket)
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", run, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(run, syscall.MNT_DETACH) })
	n.start(t)
	var given []attach.Request
	for i := 0; ; i++ {
		r := n.pod(t, fmt.Sprint("pod-", i))
		_, err := n.call(r)
		if err == nil && i < 1000 {
			given = append(given, r)
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "no space left on device") {
			n.fatal(fmt.Sprintf("ADD on a full disk = %v", err))
		}
		break
	}
	if len(given) == 0 {
		t.Fatal("no Pod has its network")
	}
	for _, r := range slices.Backward(given) {
		r.Verb = attach.Release
		if _, err := n.call(r); err != nil {
			n.fatal(fmt.Sprintf("DEL on a full disk = %v", err))
		}
	}
	n.mustServe(t, "after the Pods have ended")
}
