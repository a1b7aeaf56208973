package table

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Template is a text with variables of requests, as nginx has them.
type Template []TemplatePart

// TemplatePart is a part of a Template: Text, or what Variable is for a request.
type TemplatePart struct {
	Text     string
	Variable Variable
}

// Variable is a variable of a request; the zero Variable is none.
type Variable uint8

// The variables.
const (
	_ Variable = iota
	// VariableHost is the host of a request in lower case and without a port ($host), VariableHTTPHost that with its
	// port ($http_host, $best_http_host).
	VariableHost
	VariableHTTPHost
	// VariableScheme is http or https ($scheme, $pass_access_scheme).
	VariableScheme
	// VariableURI is the path and query as they came ($request_uri), VariableEscapedURI the same as the value of a query
	// parameter ($escaped_request_uri).
	VariableURI
	VariableEscapedURI
)

// variables are their names.
var variables = map[string]Variable{
	"host": VariableHost, "http_host": VariableHTTPHost, "best_http_host": VariableHTTPHost, "scheme": VariableScheme,
	"pass_access_scheme": VariableScheme, "request_uri": VariableURI, "escaped_request_uri": VariableEscapedURI,
}

// TemplateValues are what the variables of a Template are for a request.
type TemplateValues struct{ Host, HTTPHost, Scheme, URI string }

// ParseTemplate reads a Template, in which variables are written as $name or ${name}.
func ParseTemplate(text string) (t Template, err error) {
	for text != "" {
		before, after, found := strings.Cut(text, "$")
		if before != "" {
			t = append(t, TemplatePart{Text: before})
		}
		if !found {
			break
		}
		var name string
		if braced, ok := strings.CutPrefix(after, "{"); ok {
			if name, text, ok = strings.Cut(braced, "}"); !ok {
				return nil, fmt.Errorf("${%s has no closing brace", braced)
			}
		} else {
			end := 0
			for end < len(after) && (after[end] == '_' || after[end]|0x20 >= 'a' && after[end]|0x20 <= 'z' ||
				end > 0 && after[end] >= '0' && after[end] <= '9') {
				end++
			}
			name, text = after[:end], after[end:]
		}
		v, ok := variables[name]
		if !ok {
			return nil, fmt.Errorf("variable $%s is not known", name)
		}
		t = append(t, TemplatePart{Variable: v})
	}
	return t, nil
}

// Has reports whether a variable occurs.
func (t Template) Has(v Variable) bool {
	return slices.ContainsFunc(t, func(p TemplatePart) bool { return p.Variable == v })
}

// Expand returns the text for a request.
func (t Template) Expand(of *TemplateValues) string {
	var made strings.Builder
	for _, p := range t {
		switch p.Variable {
		case VariableHost:
			made.WriteString(of.Host)
		case VariableHTTPHost:
			made.WriteString(of.HTTPHost)
		case VariableScheme:
			made.WriteString(of.Scheme)
		case VariableURI:
			made.WriteString(of.URI)
		case VariableEscapedURI:
			made.WriteString(url.QueryEscape(of.URI))
		default:
			made.WriteString(p.Text)
		}
	}
	return made.String()
}

// String returns the text as ParseTemplate reads it.
func (t Template) String() string {
	var made strings.Builder
	for _, p := range t {
		if p.Variable == 0 {
			made.WriteString(p.Text)
			continue
		}
		for _, name := range []string{"host", "http_host", "scheme", "request_uri", "escaped_request_uri"} {
			if variables[name] == p.Variable {
				made.WriteString("${" + name + "}")
			}
		}
	}
	return made.String()
}
