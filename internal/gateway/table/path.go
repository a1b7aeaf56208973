package table

import (
	"errors"
	"net/url"
	"strings"
)

// ErrPath is the error of a path that no request may have: one that does not begin with a slash, or
// whose percent-encoding is broken (RFC 3986, sections 2.1 and 3.3).
var ErrPath = errors.New("the path is not valid")

// Normalize returns the path that rules are compared with and upstreams get, so that both see the
// same one: unreserved characters are not percent-encoded, the digits of others are in upper case, and
// there are no dot segments (RFC 3986, sections 6.2.2.1 to 6.2.2.3). Slashes that follow one another,
// and encoded ones, stay. A path that is normal is returned as it is.
func Normalize(path string) (string, error) {
	if path == "" || path[0] != '/' {
		return "", ErrPath
	}
	if strings.IndexByte(path, '%') >= 0 {
		var err error
		if path, err = decodeUnreserved(path); err != nil {
			return "", err
		}
	}
	if strings.Contains(path, "/.") {
		path = removeDots(path)
	}
	return path, nil
}

// Decoded returns a normal path as nginx compares it with locations: percent-decoded, and then with one slash for
// several and without dot segments (nginx, "location" and "merge_slashes"). Backends may take the path for that one.
func Decoded(path string) string {
	if strings.IndexByte(path, '%') >= 0 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if strings.Contains(path, "/.") {
		path = removeDots(path)
	}
	return path
}

// decodeUnreserved decodes what need not be encoded.
func decodeUnreserved(path string) (string, error) {
	var b strings.Builder
	b.Grow(len(path))
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			b.WriteByte(path[i])
			continue
		}
		if i+2 >= len(path) {
			return "", ErrPath
		}
		high, low := digit(path[i+1]), digit(path[i+2])
		if high < 0 || low < 0 {
			return "", ErrPath
		}
		switch c := byte(high<<4 | low); {
		case unreserved(c):
			b.WriteByte(c)
		case c == 0:
			return "", ErrPath
		default:
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[high])
			b.WriteByte(digits[low])
		}
		i += 2
	}
	return b.String(), nil
}

// digit returns the value of a hexadecimal digit, -1 if it is none.
func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// removeDots removes dot segments (RFC 3986, section 5.2.4).
func removeDots(path string) string {
	var out []string
	elements := strings.Split(path[1:], "/")
	for i, e := range elements {
		last := i == len(elements)-1
		switch e {
		case "..":
			out = out[:max(0, len(out)-1)]
			fallthrough
		case ".":
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, e)
		}
	}
	return "/" + strings.Join(out, "/")
}
