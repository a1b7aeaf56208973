package wire

import (
	"errors"
	"io"
	"net/http"
)

const (
	// maxChunkLine is how many octets the line before a chunk may have, with extensions.
	maxChunkLine = 256
	// maxExtensions is how many octets all extensions of a body may have.
	maxExtensions = 4 << 10
	// maxChunkDigits keeps the size of a chunk within an int64.
	maxChunkDigits = 15
)

// Chunks reads what is between the octets of a chunked body (RFC 9112, section 7.1).
type Chunks struct {
	// Trailer is the trailer section when all was read; nil if it has no fields.
	Trailer http.Header

	inChunk, inTrailers bool // the end of a chunk, or the trailer section, is still to be read
	extensions          int  // octets
}

// Next reads up to the octets of the next chunk, and returns how many these are. The caller uses them before it calls
// Next again. Behind the last chunk it reads the trailer section, and returns 0. After an error of from it can be
// called again.
func (c *Chunks) Next(b *Buffer, from io.Reader, lim Limits) (size int64, err error) {
	if c.inChunk {
		line, err := b.line(from, len("\r\n"))
		if err != nil || len(line) > 0 {
			return 0, errorOr(err, ErrChunkEnd)
		}
		c.inChunk = false
	}
	if !c.inTrailers {
		line, err := b.line(from, maxChunkLine)
		if err != nil {
			return 0, err
		}
		size, extension, err := parseChunk(line)
		if err != nil {
			return 0, err
		}
		if c.extensions += extension; c.extensions > maxExtensions {
			return 0, ErrChunkLine
		}
		if size > 0 {
			c.inChunk = true
			return size, nil
		}
		c.inTrailers = true
	}
	section, err := b.section(from, lim.Size)
	if err != nil {
		return 0, err
	}
	c.Trailer, err = parseTrailers(section, lim.Fields)
	return 0, err
}

// errorOr returns err, or if that is nil, or says that a line is too long, another one.
func errorOr(err, other error) error {
	if err == nil || errors.Is(err, ErrChunkLine) {
		return other
	}
	return err
}

// parseChunk parses the line before a chunk, and returns the size of the chunk and of the line's extensions.
func parseChunk(line []byte) (size int64, extension int, err error) {
	digits := 0
	for digits < len(line) {
		value := hexValue(line[digits])
		if value < 0 {
			break
		}
		size = size<<4 | int64(value)
		if digits++; digits > maxChunkDigits {
			return 0, 0, ErrChunkSize
		}
	}
	if digits == 0 {
		return 0, 0, ErrChunkSize
	}
	rest := line[digits:]
	for _, c := range rest {
		if c < ' ' && c != '\t' || c == 0x7f {
			return 0, 0, ErrChunkSize
		}
	}
	name := rest
	for len(name) > 0 && isSpace(name[0]) {
		name = name[1:]
	}
	if len(rest) > 0 && (len(name) == 0 || name[0] != ';') {
		return 0, 0, ErrChunkSize
	}
	return size, len(rest), nil
}

func hexValue(c byte) int {
	switch {
	case IsDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
