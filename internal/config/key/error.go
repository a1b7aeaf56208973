package key

import (
	"fmt"
	"strings"
)

// Error is an error in the value of a key.
type Error struct {
	Path string
	Item int // index in a list, from 0; -1 is the whole value
	Line int // within a value of several lines, from 1; 0 is the whole value
	Err  error
}

func (e *Error) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error for the value of a key.
func Errorf(path, format string, args ...any) error {
	return &Error{Path: path, Item: -1, Err: fmt.Errorf(format, args...)}
}

// ItemErrorf returns an Error for an item of the list that is the value of a key.
func ItemErrorf(path string, item int, format string, args ...any) error {
	return &Error{Path: path, Item: item, Err: fmt.Errorf(format, args...)}
}

// Object parses the value of a key that names an object as namespace/name.
func Object(path, text string) (namespace, name string, err error) {
	namespace, name, _ = strings.Cut(text, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", Errorf(path, "%q is not namespace/name", text)
	}
	return namespace, name, nil
}
