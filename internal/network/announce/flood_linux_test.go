package announce

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// transmit sends a frame on the interface eth0.
func transmit(t *testing.T, b []byte) {
	t.Helper()
	i, err := net.InterfaceByName("eth0")
	must(t, err)
	s, err := openSocket(i.Index, unix.ETH_P_LOOP, messageFilter())
	must(t, err)
	defer s.file.Close()
	must(t, s.send(b))
}

// flood sends ARP requests for an address from many hosts for a while, and returns how many.
func flood(t *testing.T, index int, a netip.Addr, duration time.Duration) (sent int) {
	t.Helper()
	s, err := openSocket(index, unix.ETH_P_LOOP, messageFilter())
	must(t, err)
	defer s.file.Close()
	target := a.As4()
	for end := time.Now().Add(duration); time.Now().Before(end); sent++ {
		b := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 1, 0, 0, 0, 0, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 1, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(b[24:], uint32(sent))
		b = append(b, 192, 0, 2, 200, 0, 0, 0, 0, 0, 0)
		b = append(append(b, target[:]...), make([]byte, 18)...)
		_ = s.send(b) // the queue may be full
	}
	return sent
}
