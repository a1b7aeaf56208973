package report

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"iter"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// removed stands for what was removed.
const removed = "(removed)"

// Cleaner removes secrets from texts: those that it was told of, and what looks like one. It may also replace addresses
// and names.
type Cleaner struct {
	secrets   map[string]struct{}
	replacer  *strings.Replacer // of secrets; nil if they changed
	masks     masks
	addresses bool
	key       []byte // of pseudonyms
}

// NewCleaner returns a Cleaner that knows no secret. Its pseudonyms differ from those of other Cleaners.
func NewCleaner() *Cleaner {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return &Cleaner{secrets: make(map[string]struct{}), key: key}
}

// shortest is the length in octets of the shortest secret: shorter texts are parts of others.
const shortest = 6

// Hide has a secret removed, as it is, in base64, and as a part of a URL. Of several lines each is a secret.
func (c *Cleaner) Hide(secret string) {
	secret = strings.TrimSpace(secret)
	for line := range strings.Lines(secret) {
		c.hide(strings.TrimSpace(line))
	}
	c.insert(secret)
}

// hide has a line removed and, if it is one of a file of users, the password in it.
func (c *Cleaner) hide(line string) {
	c.insert(line)
	if user, password, ok := strings.Cut(line, ":"); ok && user != "" {
		c.insert(strings.TrimSpace(password))
	}
}

// insert adds the forms of a secret to those that are removed.
func (c *Cleaner) insert(secret string) {
	if len(secret) < shortest {
		return
	}
	c.replacer = nil
	for _, text := range []string{
		secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)),
	} {
		c.secrets[text] = struct{}{}
	}
}

// MaskAddresses has each IP address but those of loopback replaced by a pseudonym, equal ones by equal pseudonyms.
func (c *Cleaner) MaskAddresses() { c.addresses = true }

// Clean returns a text without secrets, with pseudonyms of names and addresses if that was asked for.
func (c *Cleaner) Clean(text string) string {
	return c.maskAddresses(c.maskWords(c.maskDomains(c.cleanSecrets(text))))
}

// CleanCode is Clean for a text whose words with dots are of a program, such as stacks.
func (c *Cleaner) CleanCode(text string) string {
	return c.maskAddresses(c.maskWords(c.cleanSecrets(text)))
}

func (c *Cleaner) cleanSecrets(text string) string {
	if c.replacer == nil {
		c.replacer = newReplacer(maps.Keys(c.secrets), func(string) string { return removed })
	}
	return cleanPatterns(c.replacer.Replace(text))
}

func (c *Cleaner) maskAddresses(text string) string {
	if !c.addresses {
		return text
	}
	text = reverse6.ReplaceAllStringFunc(text, func(s string) string { return c.pseudonym("address", s) })
	text = addresses.ReplaceAllStringFunc(text, c.maskAddress)
	return dashed.ReplaceAllStringFunc(text, c.maskDashed)
}

// newReplacer returns a replacer of texts; of two that begin alike, the longer one is replaced.
func newReplacer(texts iter.Seq[string], by func(text string) string) *strings.Replacer {
	all := slices.SortedFunc(texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(all))
	for _, text := range all {
		pairs = append(pairs, text, by(text))
	}
	return strings.NewReplacer(pairs...)
}

// pseudonym returns a name that stands for a text.
func (c *Cleaner) pseudonym(kind, text string) string {
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(text))
	const octets = 4
	return kind + "-" + hex.EncodeToString(mac.Sum(nil)[:octets])
}

var (
	addresses = regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*|\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)
	reverse6  = regexp.MustCompile(`(?i)\b(?:[0-9a-f]\.){8,}ip6\.arpa`)
	// dashed are addresses as names of Pods have them.
	dashed = regexp.MustCompile(`\b[0-9A-Fa-f]*-[0-9A-Fa-f]*-[0-9A-Fa-f-]*[0-9A-Fa-f]\b`)
)

func (c *Cleaner) maskAddress(text string) string {
	addr, err := netip.ParseAddr(strings.TrimRight(text, ":"))
	if err != nil || addr.IsLoopback() || addr.IsUnspecified() {
		return text
	}
	return c.pseudonym("address", addr.Unmap().String())
}

func (c *Cleaner) maskDashed(text string) string {
	for _, separator := range []string{".", ":"} {
		if addr, err := netip.ParseAddr(strings.ReplaceAll(text, "-", separator)); err == nil {
			return c.pseudonym("address", addr.Unmap().String())
		}
	}
	return text
}
