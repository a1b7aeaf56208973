package mmsg_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/mmsg"
)

// open opens a UDP socket on loopback.
func open(t *testing.T) (fd int, address unix.Sockaddr) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if address, err = unix.Getsockname(fd); err != nil {
		t.Fatal(err)
	}
	return fd, address
}

// TestThereAndBack checks that messages reach a server, and that its answers reach
// their senders.
func TestThereAndBack(t *testing.T) {
	server, address := open(t)
	client, _ := open(t)
	if err := unix.Connect(client, address); err != nil {
		t.Fatal(err)
	}
	out, in := mmsg.New(2), mmsg.New(4)
	out.SetBuffer(0, []byte("one"))
	out.SetBuffer(1, []byte("three"))
	in.AddPeers()
	var buffers [4][16]byte
	for i := range buffers {
		in.SetBuffer(i, buffers[i][:])
	}
	if n, err := out.Send(client, 2, 0); n != 2 || err != nil {
		t.Fatalf("Send = %d, %v", n, err)
	}
	if n, err := in.Receive(server, unix.MSG_DONTWAIT); n != 2 || err != nil {
		t.Fatalf("Receive = %d, %v", n, err)
	}
	for i, want := range []string{"one", "three"} {
		got := buffers[i][:in.Len(i)]
		if string(got) != want {
			t.Errorf("message %d is %q, want %q", i, got, want)
		}
		in.SetBuffer(i, got)
	}
	if n, err := in.Send(server, 2, 0); n != 2 || err != nil {
		t.Fatalf("Send back = %d, %v", n, err)
	}
	var back [2][16]byte
	out.SetBuffer(0, back[0][:])
	out.SetBuffer(1, back[1][:])
	if n, err := out.Receive(client, unix.MSG_DONTWAIT); n != 2 || err != nil || string(back[1][:out.Len(1)]) != "three" {
		t.Errorf("Receive = %d, %v, and %q", n, err, back[1][:out.Len(1)])
	}
	if _, err := out.Receive(client, unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("Receive of nothing gives %v", err)
	}
}
