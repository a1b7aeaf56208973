package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"portolan.dev/portolan/internal/pod/explain"
)

// mostAnswer is the longest answer of an admin address that is read as a whole, in octets.
const mostAnswer = 16 << 20

// readAnswer reads an answer of up to mostAnswer octets.
func readAnswer(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, mostAnswer+1))
	if err == nil && len(text) > mostAnswer {
		err = fmt.Errorf("the answer is longer than %d MiB", mostAnswer>>20)
	}
	return text, err
}

// escapeControls returns JSON that a terminal shows as it is: in strings, control and format characters are escaped.
func escapeControls(text []byte) []byte {
	if !bytes.ContainsFunc(text, isControl) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case !isControl(r):
			b.WriteRune(r)
		case high == utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.Bytes()
}

// isControl reports whether a character controls a terminal, or how others are shown. Those that divide text into
// lines and columns do not.
func isControl(r rune) bool {
	return r != '\n' && r != '\t' && (r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf))
}

// colors are the control sequences that set colors (ECMA-48, SGR).
var colors = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// plainText returns a text for a terminal, without control characters but those of colors, if it may have them.
func plainText(text string, style explain.Style) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, isWhole := strings.CutSuffix(line, "\n")
		if style.Color {
			for at := colors.FindStringIndex(line); at != nil; at = colors.FindStringIndex(line) {
				b.WriteString(explain.Plain(line[:at[0]]) + line[at[0]:at[1]])
				line = line[at[1]:]
			}
		}
		b.WriteString(explain.Plain(line))
		if isWhole {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// plainWriter writes lines as plainText returns them.
type plainWriter struct {
	io.Writer
	rest []byte // of a line that is not complete
}

// mostLine is the length in octets at which a line is written before it is complete.
const mostLine = 64 << 10

// Write implements io.Writer.
func (w *plainWriter) Write(text []byte) (int, error) {
	w.rest = append(w.rest, text...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	if len(w.rest)-end > mostLine {
		end = len(w.rest)
	}
	if err := w.pass(end); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Flush writes a last line that does not end.
func (w *plainWriter) Flush() error { return w.pass(len(w.rest)) }

func (w *plainWriter) pass(end int) error {
	_, err := io.WriteString(w.Writer, plainText(string(w.rest[:end]), explain.Style{}))
	w.rest = append(w.rest[:0], w.rest[end:]...)
	return err
}

// copyLines writes the lines of JSON of a page as show returns them. Empty lines mean nothing.
func copyLines(w io.Writer, lines io.Reader, show func(line []byte) (string, error)) error {
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		if len(scanner.Bytes()) == 0 {
			continue
		}
		line, err := show(scanner.Bytes())
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return scanner.Err()
}

// shown returns what shows a line of JSON: people, or as it is with the format json.
func (f output) shown(people func(line []byte) (string, error)) func(line []byte) (string, error) {
	if f != "json" {
		return people
	}
	return func(line []byte) (string, error) { return string(escapeControls(line)), nil }
}
