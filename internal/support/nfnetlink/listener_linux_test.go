package nfnetlink_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "nft", command).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v\n%s", command, err, out)
	}
}

// many adds so many elements from an address on to the set s of the table own that they are committed
// outside of the group.
func many(from uint32) *nfnetlink.Batch {
	b := new(nfnetlink.Batch)
	for m := range uint32(60) {
		b.Begin(unix.NFPROTO_IPV4, unix.NFT_MSG_NEWSETELEM, netlink.Request|netlink.Create)
		b.Buf = nfnetlink.AppendString(b.Buf, unix.NFTA_SET_ELEM_LIST_TABLE, "own")
		b.Buf = nfnetlink.AppendString(b.Buf, unix.NFTA_SET_ELEM_LIST_SET, "s")
		buf, list := nfnetlink.OpenNested(b.Buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for i := range uint32(400) {
			var item int
			buf, item = nfnetlink.OpenNested(buf, unix.NFTA_LIST_ELEM)
			addr := binary.BigEndian.AppendUint32(nil, from+m*400+i)
			buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_KEY, string(addr))
			nfnetlink.CloseNested(buf, item)
		}
		nfnetlink.CloseNested(buf, list)
		b.Buf = buf
		b.End()
	}
	return b
}

// inGroup reports whether any socket of the namespace gets messages about nftables.
func inGroup(t *testing.T) bool {
	t.Helper()
	all, err := os.ReadFile("/proc/thread-self/net/netlink")
	must(t, err)
	for line := range bytes.Lines(all) {
		// The columns are sk, Eth, Pid, Groups: a mask of groups from 1 on.
		f := bytes.Fields(line)
		if len(f) > 3 && string(f[1]) == "12" && bytes.Contains([]byte("4567cdef"), f[3][6:7]) {
			return true
		}
	}
	return false
}

// TestCommitUnheard changes nftables by another program while a large batch is committed outside of the
// group: Watch reports that something may be lost. Without such a change it reports nothing, and later
// changes are heard.
func TestCommitUnheard(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	command(t, "table ip own { set s { type ipv4_addr; }; }; table ip other")
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	must(t, err)
	defer socket.Close()
	must(t, socket.SetWriteBuffer(1<<23))
	var l nfnetlink.Listener
	must(t, l.Ignore(socket, 0))
	must(t, l.Listen())
	notices, ended := make(chan nfnetlink.Notice, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- l.Watch(ctx, "own", notices) }()
	await := func(what string, want nfnetlink.Notice) {
		t.Helper()
		select {
		case got := <-notices:
			if got != want {
				t.Errorf("%s: notice %d, want %d", what, got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s: no notice", what)
		}
	}
	const nobody, before, after = 0, 1, 2
	for i, when := range []int{nobody, before, nobody, after, nobody} {
		calls := 0
		l.Between(func() {
			if inGroup(t) {
				t.Errorf("batch %d is heard", i)
			}
			if calls++; calls == when {
				command(t, "add element ip own s { "+netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()+" }")
			}
		})
		must(t, l.Commit(many(uint32(i)<<16), socket))
		if calls != 2 || !inGroup(t) {
			t.Errorf("batch %d: left the group %t, joined it %t", i, calls > 0, inGroup(t))
		}
		if when != nobody {
			await("a change meanwhile", nfnetlink.Lost)
		}
		command(t, "add chain ip other c"+strconv.Itoa(i))
		select {
		case got := <-notices:
			t.Errorf("batch %d: notice %d after all", i, got)
		default:
		}
		command(t, "add element ip own s { "+netip.AddrFrom4([4]byte{11, 0, 0, byte(i)}).String()+" }")
		await("a change afterwards", nfnetlink.Changed)
	}
	stop()
	must(t, <-ended)
}
