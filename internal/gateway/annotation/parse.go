package annotation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxValue bounds values: longer ones are invalid.
const maxValue = 64 << 10

// Parse reads the annotations of an Ingress, of which those with other prefixes do not count. The verdicts are in the
// order of the names. An annotation that is invalid has no effect, but if it restricts who is served: then no request
// is, see Settings.Denied.
func Parse(annotations map[string]string) (*Settings, []Verdict) {
	p := &parser{values: make(map[string]string), settings: &Settings{SSLRedirect: true, Protocol: HTTP}}
	for name, value := range annotations {
		if short, ok := strings.CutPrefix(name, Prefix); ok {
			p.values[short] = strings.TrimSpace(value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		p.verdicts = append(p.verdicts, p.judge(name))
	}
	p.finish()
	return p.settings, p.verdicts
}

// parser reads the annotations of an Ingress.
type parser struct {
	values   map[string]string
	settings *Settings
	verdicts []Verdict
}

// judge reads an annotation.
func (p *parser) judge(name string) Verdict {
	k, ok := Find(name)
	value := p.values[name]
	switch {
	case !ok:
		return Verdict{name, Unsupported, "there is no annotation with this name"}
	case k.read == nil:
		if k.restricts && value != "" && value != "false" {
			p.close(&k, k.Text)
		}
		return Verdict{name, k.Effect, k.Text}
	case len(value) > maxValue:
		return p.invalid(&k, fmt.Errorf("is longer than %d octets", maxValue))
	}
	v := Verdict{name, k.Effect, k.Text}
	if value == "" { // as if it were not there
		return Verdict{name, Ignored, "is empty"}
	}
	err := k.read(p, value)
	if other, ok := errors.AsType[*otherError](err); ok {
		return Verdict{name, other.effect, other.text}
	}
	if err != nil {
		return p.invalid(&k, err)
	}
	return v
}

// invalid is the verdict on an annotation with an invalid value.
func (p *parser) invalid(k *Known, err error) Verdict {
	text := err.Error()
	if k.restricts {
		p.close(k, text)
		text += ": no request is served"
	}
	return Verdict{k.Name, Invalid, text}
}

// deny has no request for the paths of the Ingress be served.
func (p *parser) deny(name, why string) { p.settings.Denied = cmp.Or(p.settings.Denied, name+" "+why) }

// denyHost has no request for its hosts be served.
func (p *parser) denyHost(name, why string) {
	p.deny(name, why)
	p.settings.HostDenied = cmp.Or(p.settings.HostDenied, name+" "+why)
}

// close has no request be served that an annotation restricts.
func (p *parser) close(k *Known, why string) {
	if k.host {
		p.denyHost(k.Name, why)
	} else {
		p.deny(k.Name, why)
	}
}

// otherError is a value that is valid, but has another effect than others.
type otherError struct {
	effect Effect
	text   string
}

// Error implements error.
func (e *otherError) Error() string { return e.text }

func unsupported(format string, args ...any) error {
	return &otherError{Unsupported, fmt.Sprintf(format, args...)}
}

// finish sets what depends on several annotations.
func (p *parser) finish() {
	s := p.settings
	p.finishAuth()
	p.needs("auth-signin", "auth-url", s.External != nil)
	for _, name := range []string{
		"auth-method", "auth-signin-redirect-param", "auth-response-headers", "auth-request-redirect",
	} {
		p.needs(name, "auth-url", s.External != nil)
	}
	if s.External != nil && s.External.URL == "" {
		s.External = nil
	}
	if c := s.CORS; c != nil && p.values["enable-cors"] != "" && !p.on("enable-cors") {
		s.CORS = nil
	}
	for _, name := range corsNames {
		p.needs(name, "enable-cors", s.CORS != nil && p.on("enable-cors"))
	}
	if !p.on("enable-cors") {
		s.CORS = nil
	}
	p.finishCanary()
	p.finishLimits()
	for name := range p.values {
		ofCanary := name == "affinity-canary-behavior" && p.on("canary") // whose main Ingress has the affinity
		if strings.HasPrefix(name, "session-cookie-") || strings.HasPrefix(name, "affinity-") && !ofCanary {
			p.needs(name, "affinity", s.Affinity != nil && p.values["affinity"] == "cookie")
		}
	}
	if p.values["affinity"] != "cookie" {
		s.Affinity = nil
	}
	p.needs("x-forwarded-prefix", "rewrite-target", s.Rewrite != "")
	if s.Rewrite == "" {
		s.Prefix = ""
	}
	p.finishRedirect()
}

// finishRedirect: a temporal redirect comes before a permanent one.
func (p *parser) finishRedirect() {
	temporal := p.values["temporal-redirect"] != "" && p.verdict("temporal-redirect").Effect == Used
	if temporal {
		p.ignore("permanent-redirect", "temporal-redirect comes before it")
	}
	p.needs("permanent-redirect-code", "permanent-redirect", p.values["permanent-redirect"] != "" && !temporal)
	p.needs("temporal-redirect-code", "temporal-redirect", temporal)
}

// finishAuth: passwords need a Secret.
func (p *parser) finishAuth() {
	s := p.settings
	kind := p.values["auth-type"]
	for _, name := range []string{"auth-secret", "auth-secret-type", "auth-realm"} {
		p.needs(name, "auth-type", kind != "")
	}
	if kind == "" {
		s.Basic = nil
		return
	}
	if kind == "basic" && (s.Basic == nil || s.Basic.Secret == "") {
		p.deny("auth-type", "needs auth-secret")
		p.set("auth-type", Invalid, "needs auth-secret: no request is served")
	}
	if kind != "basic" {
		s.Basic = nil
	}
}

// finishCanary: weights and so on count for canaries only.
func (p *parser) finishCanary() {
	s := p.settings
	on := p.on("canary")
	for name := range p.values {
		if strings.HasPrefix(name, "canary-") {
			p.needs(name, "canary", on)
		}
	}
	if !on {
		s.Canary = nil
		return
	}
	if s.Canary == nil {
		s.Canary = new(Canary)
	}
	c := s.Canary
	c.Total = max(c.Total, 100)
	c.Weight = min(max(c.Weight, 0), c.Total)
	p.needs("canary-by-header-value", "canary-by-header", c.Header != "")
	p.needs("canary-by-header-pattern", "canary-by-header", c.Header != "")
	if c.Value != "" && c.Pattern != "" {
		p.ignore("canary-by-header-pattern", "canary-by-header-value comes before it")
		c.Pattern = ""
	}
	for name := range p.values {
		if !canaryMay(name) {
			p.ignore(name, "the Ingress is a canary: that of the main Ingress counts")
		}
	}
}

// canaryMay reports whether an annotation counts for an Ingress that is a canary.
func canaryMay(name string) bool {
	return strings.HasPrefix(name, "canary") || strings.HasPrefix(name, "affinity") ||
		strings.HasPrefix(name, "session-cookie-") || name == "load-balance" || name == "upstream-hash-by"
}

// finishLimits: without a limit there is no burst.
func (p *parser) finishLimits() {
	l := p.settings.Limits
	if l == nil {
		return
	}
	limits := l.PerSecond > 0 || l.PerMinute > 0 || l.Connections > 0
	for _, name := range []string{"limit-burst-multiplier", "limit-whitelist", "limit-allowlist"} {
		p.needs(name, "limit-rps, limit-rpm or limit-connections", limits)
	}
	if !limits {
		p.settings.Limits = nil
		return
	}
	if l.Burst < 1 {
		l.Burst = 5 // the default
	}
}

// on reports whether an annotation is true.
func (p *parser) on(name string) bool {
	b, err := strconv.ParseBool(p.values[name])
	return err == nil && b
}

// verdict returns the verdict on an annotation; nil if there is none.
func (p *parser) verdict(name string) *Verdict {
	i := slices.IndexFunc(p.verdicts, func(v Verdict) bool { return v.Name == name })
	if i < 0 {
		return &Verdict{}
	}
	return &p.verdicts[i]
}

// set replaces a verdict.
func (p *parser) set(name string, e Effect, text string) {
	if v := p.verdict(name); v.Name != "" {
		v.Effect, v.Text = e, text
	}
}

// ignore replaces the verdict on an annotation that is used.
func (p *parser) ignore(name, why string) {
	if v := p.verdict(name); v.Effect == Used {
		v.Effect, v.Text = Ignored, why
	}
}

// needs ignores an annotation if another one is missing.
func (p *parser) needs(name, other string, there bool) {
	if !there {
		p.ignore(name, "it has no effect without "+other)
	}
}

// The readers of values follow.

// flag reads a boolean (strconv.ParseBool, as ingress-nginx does).
func flag(set func(*Settings, bool)) reader {
	return func(p *parser, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		set(p.settings, b)
		return nil
	}
}

// number reads an integer of at least least.
func number(least int, set func(*Settings, int)) reader {
	return func(p *parser, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > 1<<30 {
			return fmt.Errorf("%q is not a number of at least %d", value, least)
		}
		set(p.settings, n)
		return nil
	}
}

// seconds reads a number of seconds, without a unit.
func seconds(set func(*Settings, time.Duration)) reader {
	return func(p *parser, value string) error {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a number of seconds; units are not allowed", value)
		}
		set(p.settings, time.Duration(n)*time.Second)
		return nil
	}
}

// matching reads a text that an expression matches.
func matching(of *regexp.Regexp, what string, set func(*Settings, string)) reader {
	return func(p *parser, value string) error {
		if !of.MatchString(value) {
			return fmt.Errorf("%q is not %s", value, what)
		}
		set(p.settings, value)
		return nil
	}
}

// oneOf reads one of several words.
func oneOf(words []string, set func(*Settings, string)) reader {
	return func(p *parser, value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(words, ", "))
		}
		set(p.settings, value)
		return nil
	}
}

// The expressions are those that the annotations are validated with, since version 1.12 by default.
var (
	pathWithGroups = regexp.MustCompile(`^/?[-._~a-zA-Z0-9/:$]*$`)
	plainURL       = regexp.MustCompile(`^https?://[-._~a-zA-Z0-9/:,?&=]+$`)
	hostText       = regexp.MustCompile(`^[-._~a-zA-Z0-9:]+$`)
	pathText       = regexp.MustCompile(`^[-._~a-zA-Z0-9/:]+$`)
	headerName     = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	cookieName     = regexp.MustCompile(`^[-._~a-zA-Z0-9]+$`)
	variable       = regexp.MustCompile(`\$([^1-9]|$)|\$[1-9][0-9]`)
	methodName     = regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH|DELETE|CONNECT|OPTIONS|TRACE)$`)
	octets         = regexp.MustCompile(`^([0-9]+)([bkmgBKMG]?)$`)
)

// readRewrite reads rewrite-target.
func readRewrite(p *parser, value string) error {
	switch {
	case !pathWithGroups.MatchString(value):
		return fmt.Errorf("%q is not a path, with $1 and so on for groups", value)
	case variable.MatchString(value):
		return fmt.Errorf("%q has another variable than $1 to $9", value)
	}
	p.settings.Rewrite = value
	return nil
}

// readAppRoot reads app-root.
func readAppRoot(p *parser, value string) error {
	u, err := url.ParseRequestURI(value)
	if err != nil || u.IsAbs() || !pathWithGroups.MatchString(value) || strings.Contains(value, "$") || value[0] != '/' {
		return fmt.Errorf("%q is not an absolute path", value)
	}
	if value == "/" {
		return fmt.Errorf("%q would redirect to itself", value)
	}
	p.settings.AppRoot = value
	return nil
}

// readBody reads proxy-body-size.
func readBody(p *parser, value string) error {
	m := octets.FindStringSubmatch(value)
	if m == nil {
		return fmt.Errorf("%q is not a size, such as 8m", value)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	shift := map[string]int{"": 0, "b": 0, "k": 10, "m": 20, "g": 30}[strings.ToLower(m[2])]
	if err != nil || n > 1<<62>>shift {
		return fmt.Errorf("%q is too large", value)
	}
	p.settings.Body = Size{n << shift, true}
	return nil
}

// ranges reads addresses and ranges of addresses.
func ranges(set func(*Settings, []netip.Prefix)) reader {
	return func(p *parser, value string) error {
		all, err := parseRanges(value)
		if err != nil {
			return err
		}
		set(p.settings, all)
		return nil
	}
}

func parseRanges(value string) (all []netip.Prefix, err error) {
	for text := range strings.SplitSeq(value, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if addr, other := netip.ParseAddr(text); err != nil && other == nil && addr.Zone() == "" {
			addr = addr.Unmap()
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a range of addresses", text)
		}
		const mapped = 128 - 32 // bits before an IPv4 address in an IPv6 one
		if prefix.Addr().Is4In6() && prefix.Bits() >= mapped {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mapped)
		}
		all = append(all, prefix.Masked())
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%q has no address", value)
	}
	return all, nil
}

// readProtocol reads backend-protocol.
func readProtocol(p *parser, value string) error {
	switch value = strings.ToUpper(value); value {
	case "HTTP", "HTTPS", "GRPC", "GRPCS":
		p.settings.Protocol = Protocol(value)
	case "AUTO_HTTP":
		return unsupported("the protocol of backends cannot be that of clients: set HTTP or HTTPS")
	case "FCGI":
		return unsupported("backends cannot speak FastCGI: run an HTTP server before them")
	default:
		return fmt.Errorf("%q is not one of HTTP, HTTPS, GRPC, GRPCS", value)
	}
	return nil
}

// redirect reads a URL to redirect to.
func redirect(status int, code string, most int) reader {
	return func(p *parser, value string) error {
		if !plainURL.MatchString(value) {
			return fmt.Errorf("%q is not a URL with http or https", value)
		}
		if status == 301 && p.settings.Redirect != nil {
			return nil // both are there
		}
		p.settings.Redirect = &Redirect{value, status}
		if n, err := strconv.Atoi(p.values[code]); err == nil && n >= 300 && n <= most {
			p.settings.Redirect.Status = n
		}
		return nil
	}
}

// readCode reads the code of a redirect. Others than these are those by default.
func readCode(_ *parser, value string) error {
	if n, err := strconv.Atoi(value); err != nil || !slices.Contains([]int{301, 302, 303, 307, 308}, n) {
		return fmt.Errorf("%q is not one of 301, 302, 303, 307, 308", value)
	}
	return nil
}

// readAliases reads server-alias.
func readAliases(p *parser, value string) error {
	for name := range strings.SplitSeq(value, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		rest, wild := strings.CutPrefix(name, "*.")
		switch {
		case name == "":
			continue
		case strings.HasPrefix(name, "~"):
			return unsupported("regular expressions for hosts are not supported: list the hosts")
		case !hostText.MatchString(rest) || strings.Contains(rest, ":") || wild && !strings.Contains(rest, "."):
			return fmt.Errorf("%q is not a hostname", name)
		}
		if !slices.Contains(p.settings.Aliases, name) {
			p.settings.Aliases = append(p.settings.Aliases, name)
		}
	}
	slices.Sort(p.settings.Aliases)
	return nil
}

// names splits a list of names at commas.
func names(value string) (all []string) {
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// secretName reads the name of a Secret, with or without a namespace.
func secretName(value string) (namespace, name string, err error) {
	namespace, name, found := strings.Cut(value, "/")
	if !found {
		namespace, name = "", value
	}
	if name == "" || strings.Contains(name, "/") || found && namespace == "" || !pathText.MatchString(value) {
		return "", "", fmt.Errorf("%q is not the name of a Secret", value)
	}
	return namespace, name, nil
}
