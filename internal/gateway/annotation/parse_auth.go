package annotation

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// basic returns the Basic of the Settings, which it makes if there is none; so do those that follow.
func (s *Settings) basic() *Basic { return ensure(&s.Basic) }

func (s *Settings) external() *External { return ensure(&s.External) }

func (s *Settings) limits() *Limits { return ensure(&s.Limits) }

func (s *Settings) canary() *Canary { return ensure(&s.Canary) }

func (s *Settings) affinity() *Affinity { return ensure(&s.Affinity) }

func (s *Settings) clientCertificates() *ClientCertificates {
	if s.ClientCertificates == nil {
		s.ClientCertificates = &ClientCertificates{Verify: "on", Depth: 1}
	}
	return s.ClientCertificates
}

// cors has the values that hold if nothing else is said.
func (s *Settings) cors() *CORS {
	if s.CORS == nil {
		s.CORS = &CORS{
			Origins: []string{"*"}, Credentials: true, MaxAge: 1728000 * time.Second,
			Methods: []string{"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"},
			Headers: []string{
				"DNT", "Keep-Alive", "User-Agent", "X-Requested-With", "If-Modified-Since", "Cache-Control",
				"Content-Type", "Range", "Authorization",
			},
		}
	}
	return s.CORS
}

// ensure returns what p points to, which it makes if there is nothing.
func ensure[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

// corsNames are annotations that need enable-cors.
var corsNames = []string{
	"cors-allow-origin", "cors-allow-methods", "cors-allow-headers", "cors-expose-headers", "cors-allow-credentials",
	"cors-max-age",
}

// origin is what cors-allow-origin has.
var origin = regexp.MustCompile(`^([a-z]+://(\*\.)?[A-Za-z0-9.-]+(:[0-9]+)?|\*|null)$`)

// readOrigins reads cors-allow-origin.
func readOrigins(p *parser, value string) error {
	var all []string
	for _, name := range names(value) {
		if name == "*" {
			p.settings.cors().Origins = []string{"*"}
			return nil
		}
		if !origin.MatchString(name) {
			return fmt.Errorf("%q is not an origin, such as https://example.com", name)
		}
		all = append(all, name)
	}
	if len(all) > 0 {
		p.settings.cors().Origins = all
	}
	return nil
}

// tokens reads a list of methods or of header names.
func tokens(set func(*CORS, []string)) reader {
	return func(p *parser, value string) error {
		all := names(value)
		for _, name := range all {
			if name != "*" && !headerName.MatchString(name) {
				return fmt.Errorf("%q is not a name", name)
			}
		}
		set(p.settings.cors(), all)
		return nil
	}
}

// readAuthType reads auth-type.
func readAuthType(p *parser, value string) error {
	switch value {
	case "basic":
		p.settings.basic()
		return nil
	case "digest":
		p.deny("auth-type", "digest is not supported")
		return unsupported("digest authentication is not supported, and no request is served: use basic over TLS, " +
			"or auth-url")
	}
	return fmt.Errorf("%q is neither basic nor digest", value)
}

// readAuthSecret reads auth-secret.
func readAuthSecret(p *parser, value string) (err error) {
	b := p.settings.basic()
	b.Namespace, b.Secret, err = secretName(value)
	return err
}

// readAuthURL reads auth-url.
func readAuthURL(p *parser, value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
		return fmt.Errorf("%q is not a URL with http or https", value)
	case strings.Contains(strings.Replace(value, "://$host/", "", 1), "$"):
		p.deny("auth-url", "has a variable")
		return unsupported("of the variables only $host is supported, in the place of the host; no request is served")
	}
	p.settings.external().URL = value
	return nil
}

// readSignIn reads auth-signin, in which variables may be that the location needs.
func readSignIn(p *parser, value string) error {
	plain := value
	for _, v := range signInVariables {
		plain = strings.ReplaceAll(plain, v, "x")
	}
	if strings.Contains(plain, "$") {
		return unsupported("of the variables only %s are supported", strings.Join(signInVariables, ", "))
	}
	if u, err := url.Parse(plain); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not a URL with http or https", value)
	}
	p.settings.external().SignIn = value
	return nil
}

// signInVariables are those that auth-signin may have.
var signInVariables = []string{"$escaped_request_uri", "$request_uri", "$host", "$http_host", "$scheme"}

// readHeaders reads auth-response-headers.
func readHeaders(p *parser, value string) error {
	all := names(value)
	for _, name := range all {
		if !headerName.MatchString(name) {
			return fmt.Errorf("%q is not the name of a header", name)
		}
	}
	p.settings.external().Headers = all
	return nil
}

// readPattern reads canary-by-header-pattern.
func readPattern(p *parser, value string) error {
	if _, err := regexp.Compile(value); err != nil {
		return fmt.Errorf("%q is not a regular expression (RE2): %w", value, err)
	}
	p.settings.canary().Pattern = value
	return nil
}

// readCanaryBehavior reads affinity-canary-behavior.
func readCanaryBehavior(p *parser, value string) error {
	if value == "legacy" {
		return unsupported("sessions stay with a canary, as with sticky")
	}
	return oneOf([]string{"sticky"}, func(*Settings, string) {})(p, value)
}

// readNext reads proxy-next-upstream.
func readNext(p *parser, value string) error {
	known := []string{
		"error", "timeout", "invalid_header", "http_500", "http_502", "http_503", "http_504", "http_403", "http_404",
		"http_429", "non_idempotent", "updating", "off",
	}
	p.settings.Retry.On = []string{}
	for word := range strings.FieldsSeq(value) {
		if err := oneOf(known, func(s *Settings, w string) { s.Retry.On = append(s.Retry.On, w) })(p,
			word); err != nil {
			p.settings.Retry.On = nil
			return err
		}
	}
	return nil
}

// readClientSecret reads auth-tls-secret.
func readClientSecret(p *parser, value string) (err error) {
	c := p.settings.clientCertificates()
	c.Namespace, c.Secret, err = secretName(value)
	return err
}
