package autopath

import (
	"bytes"
	"errors"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Errors of Option.
var (
	ErrPath      = errors.New("a search path is not a domain name")
	ErrTooMany   = errors.New("too many search paths")
	ErrTooLong   = errors.New("the search paths are too long")
	ErrVersion   = errors.New("search paths of a version that is not known")
	ErrNamespace = errors.New("search paths of version 1 are not NAMESPACE,ZONE")
)

// DefaultOption is the option's code: of the range for experiments (RFC 6891,
// section 9), for the one that the KEP wished for, 15, went to Extended DNS
// Errors.
const DefaultOption = 65001

// compact is the version of the option's short form; it begins with it.
const compact = 1

// Option reads an option that says in which paths name shall be searched for.
// Its value is one of
//
//	PATH[,PATH ...]    domain names, without escapes
//	1 NAMESPACE,ZONE   the octet 1, and what the server knows the paths of
//
// and nothing at all is no path. The error is one of this package's.
func (r *Reader) Option(value, name []byte, s *Search) error {
	s.begin(name)
	switch {
	case len(value) > r.cfg.MaxOctets:
		return ErrTooLong
	case len(value) == 0:
		return nil
	case value[0] == compact:
		return r.compact(value[1:], s)
	case value[0] < ' ':
		return ErrVersion
	}
	for more := true; more; {
		var text []byte
		text, value, more = bytes.Cut(value, []byte{','})
		if len(s.paths) == r.cfg.MaxPaths {
			return ErrTooMany
		}
		path, ok := s.keepName(text)
		if !ok {
			return ErrPath
		}
		s.paths = append(s.paths, path)
	}
	return nil
}

// compact reads the short form behind its version.
func (r *Reader) compact(value []byte, s *Search) error {
	text, zoneText, two := bytes.Cut(value, []byte{','})
	namespace, good := s.keepName(text)
	zone, ok := s.keepName(zoneText)
	if !two || !good || !ok || len(namespace) == 0 || 1+int(namespace[0]) != len(namespace) {
		return ErrNamespace
	}
	s.addCluster(namespace, zone)
	s.paths = append(s.paths, r.host...)
	return nil
}

// keepName keeps the wire form, in lower case, of a name in presentation form,
// with or without the closing dot. "." is the root.
func (s *Search) keepName(text []byte) (name []byte, ok bool) {
	if string(text) == "." {
		return nil, true
	}
	start := len(s.room)
	for label := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{'.'}), []byte{'.'}) {
		if len(label) == 0 || len(label) > dnsname.MaxLabel || bytes.ContainsFunc(label, isOdd) {
			return nil, false
		}
		s.room = dnsname.AppendLower(append(s.room, byte(len(label))), label)
	}
	return s.room[start:], len(s.room)-start < dnsname.MaxWire
}

// isOdd reports whether a character needs an escape in a name (RFC 4343, section
// 2.1), or is none.
func isOdd(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`\"();@$`, c) }

// AppendPaths appends the value of an option that says what s says, as paths.
func (s *Search) AppendPaths(b []byte) []byte {
	for i, path := range s.paths {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, path)
	}
	return b
}

// AppendCompact appends the short form of what a name that was read says.
func (s *Search) AppendCompact(b []byte) []byte {
	const namespace, zone = 0, 2 // see addCluster
	head := s.paths[namespace]
	b = append(append(b, compact), head[1:1+head[0]]...)
	return appendText(append(b, ','), s.paths[zone])
}

// appendText appends the presentation form of a name that needs no escapes.
func appendText(b, name []byte) []byte {
	if len(name) == 0 {
		return append(b, '.')
	}
	for off := 0; off < len(name); off += 1 + int(name[off]) {
		if off > 0 {
			b = append(b, '.')
		}
		b = append(b, name[off+1:off+1+int(name[off])]...)
	}
	return b
}
