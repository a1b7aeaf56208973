package report

import (
	"regexp"
	"strings"
)

// pattern finds secrets by what is around them.
type pattern struct {
	// hints are texts in lower case of which a line with a match has one.
	hints []string
	find  *regexp.Regexp
	// replace is what a match becomes, as regexp.Regexp.ReplaceAllString has it.
	replace string
	// spare reports that a match, with its submatches, is no secret; nil spares none. What follows the submatch before the
	// last of a spared match is searched again.
	spare func([]string) bool
}

// cleanLine returns a line without what the pattern finds. lower is the line in lower case.
func (p *pattern) cleanLine(line, lower string) string {
	if !p.mayMatch(lower) {
		return line
	}
	if p.spare == nil {
		return p.find.ReplaceAllString(line, p.replace)
	}
	var b strings.Builder
	for {
		at := p.find.FindStringSubmatchIndex(line)
		if at == nil {
			return b.String() + line
		}
		end := at[1]
		b.WriteString(line[:at[0]])
		if match := p.find.FindStringSubmatch(line); p.spare(match) {
			end = at[len(at)-2] // where the value begins
			b.WriteString(line[at[0]:end])
		} else {
			b.Write(p.find.ExpandString(nil, p.replace, line, at))
		}
		line = line[end:]
	}
}

func (p *pattern) mayMatch(lower string) bool {
	for _, hint := range p.hints {
		if strings.Contains(lower, hint) {
			return true
		}
	}
	return false
}

// Lengths in octets of secrets that nothing around them gives away: a key of 32 octets in base64, such as WireGuard's,
// and hexadecimal numbers.
const (
	base64Key = 44
	hexKey    = 32
)

// cleanKeys returns a line without words that may be keys. Digests of images and of modules are none.
func cleanKeys(line string) string {
	var b strings.Builder
	kept := 0
	for i := 0; i < len(line); {
		end := i
		for end < len(line) && isKeyOctet(line[end]) {
			end++
		}
		if word := line[i:end]; isKey(word) && !strings.HasSuffix(line[:i], "sha256:") &&
			!strings.HasSuffix(line[:i], "h1:") {
			b.WriteString(line[kept:i] + removed)
			kept = end
		}
		i = end + 1
	}
	if kept == 0 {
		return line
	}
	return b.String() + line[kept:]
}

func isKeyOctet(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '='
}

func isKey(word string) bool {
	if len(word) < hexKey {
		return false
	}
	if len(word) == base64Key && strings.IndexByte(word, '=') == base64Key-1 {
		return true
	}
	return strings.Trim(word, "0123456789abcdefABCDEF") == ""
}

// privateKeys are private keys (RFC 7468); one that is cut ends with the text. Line breaks may be escaped.
var privateKeys = regexp.MustCompile(
	`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`,
)

// cleanPatterns returns a text without what looks like a secret.
func cleanPatterns(text string) string {
	if strings.Contains(text, "PRIVATE KEY-----") {
		text = privateKeys.ReplaceAllString(text, removed)
	}
	var b strings.Builder
	b.Grow(len(text))
	for line := range strings.Lines(text) {
		lower := strings.ToLower(line)
		for i := range patterns {
			line = patterns[i].cleanLine(line, lower)
		}
		b.WriteString(cleanKeys(line))
	}
	return b.String()
}

// value is what follows the name of a setting or of a header field.
const value = `(?:\\"[^"\\]*(?:\\"|$)|"(?:[^"\\]|\\.)*(?:"|$)|'[^']*'|\[[^\]]*\]|[^\s,;}"']+)`

// patterns are applied to each line, in their order.
var patterns = []pattern{
	// Header fields with credentials, to the end of the line or of the quoted text.
	{
		hints: []string{"cookie", "authorization", "x-api-key", "x-auth-token"},
		find: regexp.MustCompile(
			`(?i)\b((?:set-)?cookie|(?:proxy-)?authorization|x-api-key|x-auth-token)(\\?"?\s*[:=]\s*)` +
				`(?:\[[^\]\n]*\]|\\?"[^"\n]*"|[^"\n]*)`,
		),
		replace: "${1}${2}" + removed,
	},
	// Credentials of HTTP (RFC 9110, section 11.6.2).
	{
		hints:   []string{"bearer", "basic", "digest", "negotiate"},
		find:    regexp.MustCompile(`(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9._~+/=-]{6,}`),
		replace: "${1} " + removed,
	},
	// JSON Web Tokens (RFC 7519).
	{
		hints:   []string{"eyj"},
		find:    regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*`),
		replace: removed,
	},
	// Hashes of passwords, as crypt(3), htpasswd(1) and RFC 2307 have them.
	{
		hints:   []string{"$"},
		find:    regexp.MustCompile(`\$(?:2[abxy]?|apr1|argon2i?d?|scrypt|[1567y]|sha1)\$[^\s"',]+`),
		replace: removed,
	},
	{
		hints:   []string{"{"},
		find:    regexp.MustCompile(`\{(?:SHA|SSHA|SHA256|SSHA256|SHA512|SSHA512|MD5|SMD5|CRYPT)\}[^\s"',]+`),
		replace: removed,
	},
	// Users in URLs, and query strings.
	{
		hints:   []string{"://"},
		find:    regexp.MustCompile(`(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@"']+@`),
		replace: "${1}" + removed + "@",
	},
	// Query strings: of a URL, of a path, of what has a path in it, and of anything where they have the form KEY=VALUE.
	{
		hints:   []string{"?"},
		find:    regexp.MustCompile(`(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>?]*\?)[^\s"'<>]+`),
		replace: "${1}" + removed,
	},
	{
		hints:   []string{"?"},
		find:    regexp.MustCompile(`((?:^|[\s"'=:,(\[{])/[^\s"'<>?]*\?)[^\s"'<>]*[A-Za-z0-9%][^\s"'<>]*`),
		replace: "${1}" + removed,
	},
	{
		hints:   []string{"?"},
		find:    regexp.MustCompile(`([A-Za-z0-9_.%~:\]-]/[^\s"'<>?]*\?)[A-Za-z0-9_.%~+&;-][^\s"'<>]*`),
		replace: "${1}" + removed,
	},
	{
		hints:   []string{"?"},
		find:    regexp.MustCompile(`([A-Za-z0-9/_.%~-]\?)[^\s"'<>]*=[^\s"'<>]*`),
		replace: "${1}" + removed,
	},
	// Settings with telling names.
	{
		hints: []string{"passw", "passphrase", "secret", "token", "key", "credential"},
		find: regexp.MustCompile(`(?i)(\b` + kinds + ` [a-z0-9-]+/)?` +
			`([\w.-]*(?:passwor[dt]|passwd|passphrase|secret|token|api[_-]?key|private[_-]?key|` +
			`access[_-]?key|client-key-data|credential)[\w.-]*)(\\?"?\s*[:=]\s*)(` + value + `)`),
		replace: "${1}${2}${3}" + removed,
		spare:   func(match []string) bool { return isNoSetting(match[1], strings.ToLower(match[2]), match[3], match[4]) },
	},
}

// kinds are those of objects, which stand before an object's name in a message.
const kinds = `[a-z]*(?:service|pod|secret|route|gateway|ingress|deployment|set|job|policy|slice|grant|import|class)`

// position is what follows the name of a file: a line, perhaps with a column.
var position = regexp.MustCompile(`^[0-9]+(?::[0-9]+)?:?$`)

// isNoSetting reports whether what looks like a setting is the position in a file, the beginning of a message about an
// object, or a setting whose value is the name of a file or an object. object is the kind and namespace before the key.
func isNoSetting(object, key, separator, value string) bool {
	if object != "" && strings.HasPrefix(separator, ":") {
		return true
	}
	for _, extension := range []string{".yaml", ".yml", ".json", ".go"} {
		if separator == ":" && strings.HasSuffix(key, extension) && position.MatchString(value) {
			return true
		}
	}
	for _, of := range []string{"file", "path", "name", "secret_total", "_total"} {
		if strings.HasSuffix(key, of) {
			return true
		}
	}
	return false
}
