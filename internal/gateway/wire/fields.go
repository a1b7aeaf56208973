package wire

import (
	"bytes"
	"net/http"
)

// Field is where a field is in a section.
type Field struct{ Name, NameEnd, Value, ValueEnd int }

// SplitFields finds the fields in a section, of which the first begins at an offset, and appends them. It changes
// their names to the form of http.Header (RFC 9112, section 5). Section.Find has found the section.
func SplitFields(section []byte, from int, into []Field, most int) ([]Field, error) {
	for {
		size := bytes.IndexByte(section[from:], '\n')
		line := section[from : from+size-1] // Find has seen CRLF
		if len(line) == 0 {
			return into, nil
		}
		if isSpace(line[0]) {
			return nil, ErrFolded
		}
		if len(into) == most {
			return nil, ErrFieldCount
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 || !canonize(line[:colon]) {
			return nil, ErrFieldName
		}
		begin, end := colon+1, len(line)
		for begin < end && isSpace(line[begin]) {
			begin++
		}
		for end > begin && isSpace(line[end-1]) {
			end--
		}
		for _, c := range line[begin:end] {
			if c < ' ' && c != '\t' || c == 0x7f {
				return nil, ErrFieldValue
			}
		}
		into = append(into, Field{from, from + colon, from + begin, from + end})
		from += size + 1
	}
}

// canonize changes a name to the form of http.Header, and reports whether it is one.
func canonize(name []byte) bool {
	upper := true
	for i, c := range name {
		if !tokenOctets[c] {
			return false
		}
		switch {
		case upper && 'a' <= c && c <= 'z':
			name[i] = c - 'a' + 'A'
		case !upper && 'A' <= c && c <= 'Z':
			name[i] = c - 'A' + 'a'
		}
		upper = c == '-'
	}
	return true
}

// ForbiddenTrailer reports whether a field, by its name in the form of http.Header, says how a message is read, where
// it goes, or who may send it, so that it is not allowed in a trailer section (RFC 9110, section 6.5.1).
func ForbiddenTrailer(name string) bool { return forbiddenTrailers[name] }

var forbiddenTrailers = map[string]bool{
	"Authorization": true, "Connection": true, "Content-Encoding": true, "Content-Length": true,
	"Content-Range": true, "Content-Type": true, "Cookie": true, "Expect": true, "Forwarded": true, "Host": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
}

// parseTrailers parses a trailer section. It returns nil if that is empty.
func parseTrailers(section []byte, most int) (http.Header, error) {
	var room [8]Field
	fields, err := SplitFields(section, 0, room[:0], most)
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	text, trailer := string(section), make(http.Header)
	for _, at := range fields {
		name := text[at.Name:at.NameEnd]
		if forbiddenTrailers[name] {
			return nil, ErrTrailerField
		}
		trailer[name] = append(trailer[name], text[at.Value:at.ValueEnd])
	}
	return trailer, nil
}
