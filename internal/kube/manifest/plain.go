package manifest

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// plainYAML reads documents in the block style that kubectl prints and most people write, a part of YAML 1.2 without
// anchors, tags, escapes, and with values over several lines only in block style and literals. It turns them into JSON
// without a tree, some twenty times as fast as the YAML library. What it does not read for sure, it leaves to the
// library: whatever both read is the same, which a test with random documents checks. Why: ADR 28.
type plainYAML struct {
	rest []byte // what follows the current line
	line int    // the number of the current line, from 0
	// indent and text are the current line's, without spaces at the end. At the end of the document, indent is -1.
	indent int
	text   []byte
	depth  int
	top    string // the key of the document that is read
	out    []byte
	head   head
	// items are the lines of the elements of the key items, as a List has it.
	items []int
	odd   bool // the document is left to the library
}

// mostDepth and mostKeys bound what is read: collections in one another, and keys of a mapping.
const (
	mostDepth = 64
	mostKeys  = 512
)

// readPlain reads a document that begins at the given line; ok is false if it must be read by the library.
func readPlain(chunk []byte, line int) (doc document, ok bool) {
	if slices.ContainsFunc(chunk, func(c byte) bool { return c < ' ' && c != '\n' || c >= 0x7f }) {
		return doc, false
	}
	p := &plainYAML{rest: chunk, line: -1}
	if bytes.HasPrefix(chunk, []byte("---")) {
		marker, rest, _ := bytes.Cut(chunk, []byte("\n"))
		if len(bytes.TrimRight(marker, " ")) > len("---") {
			return doc, false
		}
		p.rest, p.line = rest, 0
	}
	p.next()
	doc.line = line + p.line
	if p.indent != 0 {
		return doc, false
	}
	p.out = make([]byte, 0, len(chunk)+len(chunk)/4)
	p.mapping()
	if p.odd || p.indent >= 0 {
		return doc, false
	}
	doc.json, doc.head, doc.items, doc.source, doc.first = p.out, p.head, p.items, chunk, line
	for i := range doc.items {
		doc.items[i] += line
	}
	return doc, true
}

// next goes to the next line with content.
func (p *plainYAML) next() {
	for len(p.rest) > 0 {
		var line []byte
		line, p.rest, _ = bytes.Cut(p.rest, []byte("\n"))
		p.line++
		text := bytes.TrimLeft(line, " ")
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		p.indent, p.text = len(line)-len(text), bytes.TrimRight(text, " ")
		if p.indent == 0 && (text[0] == '%' || bytes.HasPrefix(text, []byte("..."))) {
			p.odd = true
		}
		return
	}
	p.indent, p.text = -1, nil
}

// fail leaves the document to the library.
func (p *plainYAML) fail() { p.odd = true }

// enter counts a collection, and reports whether it may be read.
func (p *plainYAML) enter() bool {
	if p.depth++; p.depth > mostDepth {
		p.fail()
	}
	return !p.odd
}

// mapping reads a mapping whose keys are indented as the current line is.
func (p *plainYAML) mapping() {
	if !p.enter() {
		return
	}
	indent := p.indent
	var keys []string
	p.out = append(p.out, '{')
	for !p.odd && p.indent == indent {
		key, value, ok := cutKey(p.text)
		if !ok || len(keys) == mostKeys || slices.Contains(keys, string(key)) {
			p.fail()
			return
		}
		name := string(key)
		if keys = append(keys, name); len(keys) > 1 {
			p.out = append(p.out, ',')
		}
		p.out = append(append(append(p.out, '"'), key...), '"', ':')
		if p.depth == 1 {
			p.top = name
		}
		start := len(p.out)
		if len(value) > 0 {
			p.scalar(value, indent)
		} else {
			p.next()
			p.nested(indent)
		}
		if p.indent > indent {
			p.fail()
		}
		p.identify(name, p.out[start:])
	}
	p.out = append(p.out, '}')
	p.depth--
}

// identify notes a value that identifies the object.
func (p *plainYAML) identify(key string, value []byte) {
	var to *string
	switch {
	case p.depth > 2 || p.depth == 2 && p.top != "metadata":
		return
	case p.depth == 2 && strings.EqualFold(key, "name"):
		to = &p.head.Metadata.Name
	case p.depth == 2 && strings.EqualFold(key, "namespace"):
		to = &p.head.Metadata.Namespace
	case p.depth == 1 && strings.EqualFold(key, "apiVersion"):
		to = &p.head.APIVersion
	case p.depth == 1 && strings.EqualFold(key, "kind"):
		to = &p.head.Kind
	case p.depth == 1 && strings.EqualFold(key, "metadata"):
		if key != "metadata" || len(value) > 0 && value[0] != '{' {
			p.fail()
		}
		return
	default:
		return
	}
	// encoding/json takes keys of any case.
	exact := key == "name" || key == "namespace" || key == "apiVersion" || key == "kind"
	if !exact || len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		p.fail()
		return
	}
	*to = string(value[1 : len(value)-1])
}

// nested reads what is below a key without a value in its line.
func (p *plainYAML) nested(indent int) {
	switch {
	case p.indent > indent && isEntry(p.text), p.indent == indent && isEntry(p.text):
		p.sequence()
	case p.indent > indent:
		p.mapping()
	default:
		p.out = append(p.out, "null"...)
	}
}

// sequence reads a sequence whose entries are indented as the current line is, and notes the lines of items.
func (p *plainYAML) sequence() {
	if !p.enter() {
		return
	}
	const inDocument = 2 // the depth of a value of the document's own mapping
	indent, ofItems := p.indent, p.depth == inDocument && p.top == "items"
	p.out = append(p.out, '[')
	for first := true; !p.odd && p.indent == indent && isEntry(p.text); first = false {
		if !first {
			p.out = append(p.out, ',')
		}
		if ofItems {
			p.items = append(p.items, p.line)
		}
		text := bytes.TrimLeft(p.text[1:], " ")
		_, _, isMapping := cutKey(text)
		switch {
		case len(text) == 0:
			p.fail()
		case isEntry(text):
			p.indent, p.text = indent+len(p.text)-len(text), text
			p.sequence()
		case isMapping:
			p.indent, p.text = indent+len(p.text)-len(text), text
			p.mapping()
		default:
			p.scalar(text, indent)
		}
		if p.indent > indent {
			p.fail()
		}
	}
	p.out = append(p.out, ']')
	p.depth--
}

// isEntry reports whether a line begins an entry of a sequence.
func isEntry(text []byte) bool {
	return len(text) > 0 && text[0] == '-' && (len(text) == 1 || text[1] == ' ')
}

// cutKey splits a line into a plain key and its value; ok is false if it has none that is a string for sure.
func cutKey(text []byte) (key, value []byte, ok bool) {
	const longest = 512
	for i, c := range text {
		switch {
		case c == ':' && (i+1 == len(text) || text[i+1] == ' '):
			if i == 0 || i > longest || isWord(text[:i]) {
				return nil, nil, false
			}
			value = bytes.TrimLeft(text[i+1:], " ")
			if len(value) > 0 && value[0] == '#' {
				value = nil
			}
			return text[:i], value, true
		case isLetter(c), i > 0 && (c >= '0' && c <= '9' || strings.IndexByte("_-./:", c) >= 0):
		default:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// isWord reports whether a plain scalar may be something else than a string though it begins with a letter.
func isWord(text []byte) bool {
	if len(text) > len("false") {
		return false
	}
	switch strings.ToLower(string(text)) {
	case "null", "true", "false":
		return true
	}
	return false
}

// scalar reads a value that stands in the current line, below what is indented by indent, and goes on to the next line.
func (p *plainYAML) scalar(text []byte, indent int) {
	switch text[0] {
	case '|':
		p.literal(text, indent)
		return
	case '"', '\'':
		if after := p.quoted(text); len(after) > 0 && !isComment(after) {
			p.fail()
			return
		}
	case '{', '[':
		if after := p.flow(text); len(after) > 0 && !isComment(after) {
			p.fail()
			return
		}
	default:
		p.plain(text)
	}
	p.next()
}

// quoted reads a quoted scalar, and returns what follows it.
func (p *plainYAML) quoted(text []byte) (after []byte) {
	inside, after, ok := bytes.Cut(text[1:], text[:1])
	if !ok || len(after) > 0 && after[0] == text[0] || text[0] == '"' && bytes.IndexByte(inside, '\\') >= 0 {
		p.fail()
		return nil
	}
	p.string(inside)
	return after
}

// flow reads a value in flow style that ends in its line, and returns what follows it.
func (p *plainYAML) flow(text []byte) (after []byte) {
	switch {
	case len(text) == 0:
		p.fail()
		return nil
	case text[0] == '"', text[0] == '\'':
		return p.quoted(text)
	case text[0] == '{', text[0] == '[':
		return p.flowCollection(text)
	}
	end := bytes.IndexAny(text, ",[]{}#\"'?") // a question mark, which the library takes for a key, is left to it
	if end <= 0 {
		p.fail()
		return nil
	}
	p.plain(bytes.TrimRight(text[:end], " "))
	return text[end:]
}

// flowCollection reads a mapping or a sequence in flow style, and returns what follows it.
func (p *plainYAML) flowCollection(text []byte) (after []byte) {
	if !p.enter() {
		return nil
	}
	depth, isMapping := p.depth, text[0] == '{'
	closing := text[0] + 2 // in ASCII
	p.out = append(p.out, text[0])
	text = bytes.TrimLeft(text[1:], " ")
	var keys []string
	for n := 0; !p.odd; n++ {
		if n == 0 && len(text) > 0 && text[0] == closing {
			break
		}
		key, value, ok := cutKey(text)
		if isMapping {
			if !ok || len(value) == 0 || len(keys) == mostKeys || slices.Contains(keys, string(key)) {
				p.fail()
				return nil
			}
			keys = append(keys, string(key))
			p.out = append(append(append(p.out, '"'), key...), '"', ':')
			text = value
		}
		start := len(p.out)
		text = bytes.TrimLeft(p.flow(text), " ")
		if isMapping {
			p.identify(string(key), p.out[start:])
		}
		if len(text) == 0 || text[0] == closing {
			break
		}
		if text[0] != ',' {
			p.fail()
		}
		p.out = append(p.out, ',')
		text = bytes.TrimLeft(text[1:], " ")
	}
	if len(text) == 0 || text[0] != closing {
		p.fail()
		return nil
	}
	p.out = append(p.out, closing)
	p.depth = depth - 1
	return text[1:]
}

// isComment reports whether what follows a scalar is a comment.
func isComment(after []byte) bool {
	text := bytes.TrimLeft(after, " ")
	return len(text) < len(after) && (len(text) == 0 || text[0] == '#')
}

// plain writes a plain scalar.
func (p *plainYAML) plain(text []byte) {
	if i := bytes.Index(text, []byte(" #")); i >= 0 {
		text = bytes.TrimRight(text[:i], " ")
	}
	first := text[0]
	if bytes.Contains(text, []byte(": ")) || text[len(text)-1] == ':' {
		p.fail()
		return
	}
	switch {
	case isLetter(first):
		switch s := string(text); {
		case s == "true", s == "false", s == "null":
			p.out = append(p.out, s...)
		case isWord(text):
			p.fail()
		default:
			p.string(text)
		}
	case first == '/' || first == '_' || first == '$' || first == '(':
		p.string(text)
	case isInteger(text):
		p.out = append(p.out, text...)
	case first >= '0' && first <= '9' && !mayBeNumber(string(text)):
		p.string(text)
	case first == '-' && len(text) > 1 && text[1] != '.' && text[1] != ' ' && !mayBeNumber(string(text)):
		p.string(text)
	default:
		p.fail()
	}
}

// isInteger reports whether a scalar is a decimal number that is the same in JSON.
func isInteger(text []byte) bool {
	const longest = 15 // digits, which a float64 holds, too
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > longest || digits[0] == '0' && len(text) > 1 {
		return false
	}
	return !slices.ContainsFunc(digits, func(c byte) bool { return c < '0' || c > '9' })
}

// mayBeNumber reports whether YAML may take a scalar for a number, or something else than a string.
func mayBeNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) > 1 && digits[0] == '0' && strings.IndexByte("bBoOxX", digits[1]) >= 0 ||
		strings.HasPrefix(text, "--") {
		return true
	}
	digits = strings.ReplaceAll(digits, "_", "")
	_, notInteger := strconv.ParseUint(digits, 0, 64)
	_, notFloat := strconv.ParseFloat(digits, 64)
	return notInteger == nil || notFloat == nil || isOutOfRange(notInteger) || isOutOfRange(notFloat)
}

func isOutOfRange(err error) bool { return strings.HasSuffix(err.Error(), strconv.ErrRange.Error()) }

// literal reads a literal block scalar, of which the first line has no spaces in excess, and goes on to the next line.
func (p *plainYAML) literal(header []byte, indent int) {
	if s := string(header); s != "|" && s != "|-" {
		p.fail()
		return
	}
	var text []byte
	inner := -1
	for len(p.rest) > 0 {
		line, rest, ended := bytes.Cut(p.rest, []byte("\n"))
		content := bytes.TrimLeft(line, " ")
		switch deep := len(line) - len(content); {
		case inner < 0 && (len(content) == 0 || deep <= indent), !ended:
			p.fail()
			return
		case inner < 0:
			inner = deep
		case len(content) > 0 && deep < inner:
			if deep > indent { // less indented than its first line
				p.fail()
				return
			}
			p.endLiteral(text, header)
			return
		}
		p.rest = rest
		p.line++
		text = append(append(text, line[min(inner, len(line)):]...), '\n')
	}
	p.endLiteral(text, header)
}

func (p *plainYAML) endLiteral(text, header []byte) {
	trimmed := bytes.TrimRight(text, "\n")
	if len(trimmed) == 0 {
		p.fail()
		return
	}
	if len(header) == 1 {
		trimmed = text[:len(trimmed)+1]
	}
	p.string(trimmed)
	p.next()
}

// string writes a string as encoding/json does.
func (p *plainYAML) string(text []byte) {
	p.out = append(p.out, '"')
	for _, c := range text {
		switch c {
		case '"', '\\':
			p.out = append(p.out, '\\', c)
		case '\n':
			p.out = append(p.out, '\\', 'n')
		case '<', '>', '&':
			p.out = append(p.out, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			p.out = append(p.out, c)
		}
	}
	p.out = append(p.out, '"')
}
