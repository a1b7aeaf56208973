package dnsserver

import "golang.org/x/sys/unix"

// ReplyControl is replyControl.
var ReplyControl = replyControl

// MaxUDPQuery is maxUDPQuery.
const MaxUDPQuery = maxUDPQuery

// Processors are those that the process may run on.
func Processors() []int { return processors() }

// TakePackets takes the packets that wait at the socket numbered i, and says how
// many there were.
func (s *Server) TakePackets(i int) (n int) {
	for {
		b := newBatch(s.udp[i])
		got, err := b.call(unix.SYS_RECVMMSG, &b.in, 0, batchLen, unix.MSG_DONTWAIT)
		if err != nil {
			return n
		}
		n += got
	}
}

// SetOption sets an option of the socket.
func (s UDPSocket) SetOption(level, name, value int) error {
	return unix.SetsockoptInt(int(s.fd.Load()), level, name, value)
}

// SetReceiveTimeout makes it an error to wait longer for packets; 0 is forever.
func (s UDPSocket) SetReceiveTimeout(t unix.Timeval) error {
	return unix.SetsockoptTimeval(int(s.fd.Load()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t)
}
