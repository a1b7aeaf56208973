package report

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// topLevel is a top-level domain (RFC 3696, section 2).
	topLevel = regexp.MustCompile(`^(?:[a-z]{2,}|xn--[a-z0-9-]+)$`)
	// fieldPath is the path of a field of an object.
	fieldPath = regexp.MustCompile(`^(?:spec|status|metadata)\.[A-Za-z.]+$`)
	// method is the name of a function or a method in Go.
	method = regexp.MustCompile(`[a-z][A-Z]|^[A-Z]`)
)

// public are domains that are in texts of every cluster: those of groups of APIs, labels and packages.
var public = []string{
	"k8s.io", "x-k8s.io", "kubernetes.io", "portolan.dev", "github.com", "golang.org", "gopkg.in", "go.yaml.in",
	"docker.io", "ghcr.io", "quay.io", "gcr.io",
}

// extensions are ends of names of files.
var extensions = []string{
	"go", "yaml", "yml", "json", "txt", "md", "pem", "crt", "key", "sock", "log", "conf", "gz", "tar", "state", "tmp",
}

// isDomain reports whether a text with dots is a domain name, by what is before and after it.
func (c *Cleaner) isDomain(name, before, after string) bool {
	bare, absolute := strings.CutSuffix(name, ".")
	lower := strings.ToLower(bare)
	if !strings.Contains(bare, ".") {
		quoted := strings.HasSuffix(before, `"`) && strings.HasPrefix(after, `"`) ||
			strings.HasSuffix(before, "=") && (after == "" || strings.HasPrefix(after, " "))
		return absolute && quoted && !number.MatchString(bare)
	}
	if c.isBelow(lower) || lower == "cluster.local" || strings.HasSuffix(lower, ".cluster.local") {
		return true
	}
	if strings.HasSuffix(before, ".") {
		return false // the rest of the path of a field
	}
	last := lower[strings.LastIndexByte(lower, '.')+1:]
	switch {
	case !topLevel.MatchString(last), last == "arpa", isPublic(lower), fieldPath.MatchString(bare):
		return false
	case absolute && (after == "" || strings.ContainsAny(after[:1], "\"':,;)]}")):
		return !slices.Contains(extensions, last)
	case strings.HasPrefix(after, "(") || strings.HasPrefix(after, "["):
		return false
	case slices.Contains(extensions, last), method.MatchString(bare[strings.LastIndexByte(bare, '.')+1:]):
		return false
	}
	_, kept := c.masks.kept[lower]
	return !kept
}

// isBelow reports whether a name is a masked domain or below one.
func (c *Cleaner) isBelow(name string) bool {
	for {
		if _, masked := c.masks.suffixes[name]; masked {
			return true
		}
		_, parent, ok := strings.Cut(name, ".")
		if !ok {
			return false
		}
		name = parent
	}
}

func isPublic(name string) bool {
	return slices.ContainsFunc(public, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
}
