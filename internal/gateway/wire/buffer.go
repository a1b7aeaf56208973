package wire

import (
	"bytes"
	"io"
)

// Buffer is what was received. Room[R:W] is not used yet.
type Buffer struct {
	Room []byte
	R, W int
}

// Received returns what is not used yet. It is valid until the Buffer changes.
func (b *Buffer) Received() []byte { return b.Room[b.R:b.W] }

// Empty reports whether all was used.
func (b *Buffer) Empty() bool { return b.R == b.W }

// Fill reads more. It returns io.ErrShortBuffer if there is no room.
func (b *Buffer) Fill(from io.Reader) error {
	if b.R == b.W {
		b.R, b.W = 0, 0
	}
	if b.W == len(b.Room) {
		if b.R == 0 {
			return io.ErrShortBuffer
		}
		b.W = copy(b.Room, b.Room[b.R:b.W])
		b.R = 0
	}
	n, err := from.Read(b.Room[b.W:])
	b.W += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// Grow makes the room larger, but not larger than size.
func (b *Buffer) Grow(size int) {
	room := make([]byte, max(len(b.Room), min(2*len(b.Room), size)))
	b.W = copy(room, b.Room[b.R:b.W])
	b.Room, b.R = room, 0
}

// line reads a line of at most so many octets, and returns it without its CRLF. It is valid until more is
// read.
func (b *Buffer) line(from io.Reader, limit int) ([]byte, error) {
	for {
		received := b.Received()
		i := bytes.IndexByte(received, '\n')
		switch {
		case i >= limit || i < 0 && len(received) >= limit:
			return nil, ErrChunkLine
		case i >= 0 && (i == 0 || received[i-1] != '\r'):
			return nil, ErrLineEnd
		case i > 0:
			b.R += i + 1
			return received[:i-1], nil
		}
		if err := b.Fill(from); err != nil {
			return nil, err
		}
	}
}

// section reads a section up to its empty line, which it returns, too. It is valid until more is read.
func (b *Buffer) section(from io.Reader, limit int) ([]byte, error) {
	section := Section{}
	for {
		end, err := section.Find(b.Received())
		if err != nil {
			return nil, err
		}
		if end > limit || end == 0 && b.W-b.R > limit {
			return nil, ErrHeadSize
		}
		if end > 0 {
			found := b.Room[b.R : b.R+end]
			b.R += end
			return found, nil
		}
		if b.R == 0 && b.W == len(b.Room) {
			b.Grow(limit + 1)
		}
		if err := b.Fill(from); err != nil {
			return nil, err
		}
	}
}

// Section finds the end of a head or a trailer section, an empty line, as more of it comes.
type Section struct {
	line int // where the present line begins
	at   int // up to where was searched
}

// Find returns how many octets the section has, 0 if its end has not come.
func (s *Section) Find(p []byte) (int, error) {
	for {
		i := bytes.IndexByte(p[s.at:], '\n')
		if i < 0 {
			s.at = len(p)
			return 0, nil
		}
		i += s.at
		if i == 0 || p[i-1] != '\r' {
			return 0, ErrLineEnd
		}
		if i-1 == s.line {
			return i + 1, nil
		}
		s.line, s.at = i+1, i+1
	}
}

// FirstLine reports whether the end of the first line has not come.
func (s *Section) FirstLine() bool { return s.line == 0 }
