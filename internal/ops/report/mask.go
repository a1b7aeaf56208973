package report

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// masks are the names that a Cleaner replaces by pseudonyms.
type masks struct {
	enabled  bool
	names    map[string]struct{}
	suffixes map[string]struct{} // domains, without their last dot
	literals map[string]string   // whole texts, and their kinds
	replacer *strings.Replacer   // of literals; nil if they changed
	kept     map[string]struct{} // words with dots that are no domain names, in lower case
}

// wellKnown are names that say nothing about a cluster.
var wellKnown = []string{
	"default", "kube-system", "kube-public", "kube-node-lease", "kubernetes", "kube-dns", "svc", "pod", "cluster", "local",
	"clusterset", "localhost", "dns", "ns", "_tcp", "_udp", "_sctp", "_NAME", "true", "false", "linux", "windows", "amd64",
	"arm64", "Helm", "arpa", "in-addr", "ip6",
}

// MaskNames has domain names replaced by pseudonyms, label by label, and the names, domains and paths that MaskName,
// MaskDomain and MaskPath add.
func (c *Cleaner) MaskNames() {
	c.masks = masks{
		enabled: true, names: make(map[string]struct{}), suffixes: make(map[string]struct{}),
		literals: make(map[string]string), kept: make(map[string]struct{}),
	}
}

// number is no name: a number, or a version such as v1.
var number = regexp.MustCompile(`^v?[0-9]+$`)

// MaskName has a name replaced by a pseudonym wherever it is a word, or a label of a domain name.
func (c *Cleaner) MaskName(name string) {
	if !c.masks.enabled {
		return
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) < 2 || isKept(label) || number.MatchString(label) {
			continue
		}
		if label == word.FindString(label) {
			c.masks.names[label] = struct{}{}
		} else {
			c.maskLiteral("name", label) // such as a_b, which words does not find
		}
	}
}

// Keep has a word with dots kept that is no domain name, such as a key of the settings.
func (c *Cleaner) Keep(text string) {
	if c.masks.enabled {
		c.masks.kept[strings.ToLower(text)] = struct{}{}
	}
}

func isKept(label string) bool {
	return slices.Contains(wellKnown, label) || strings.HasPrefix(label, "portolan")
}

// MaskDomain has each domain name below a domain replaced, and the labels of the
// domain where they are words, but not its top-level domain.
func (c *Cleaner) MaskDomain(domain string) {
	domain = strings.ToLower(strings.Trim(domain, ".*"))
	if !c.masks.enabled || domain == "" {
		return
	}
	c.masks.suffixes[domain] = struct{}{}
	if i := strings.LastIndexByte(domain, '.'); i > 0 {
		domain = domain[:i]
	}
	c.MaskName(domain)
}

// MaskPath has the path of a file replaced by a pseudonym that keeps what follows its last dot.
func (c *Cleaner) MaskPath(file string) {
	switch clean := path.Clean(file); {
	case file == "" || !c.masks.enabled || strings.Trim(clean, "./") == "":
	case !strings.ContainsAny(clean, "/."):
		c.MaskName(clean)
	default:
		c.maskLiteral("path", file)
		c.maskLiteral("path", clean)
	}
}

func (c *Cleaner) maskLiteral(kind, text string) {
	c.masks.literals[text] = kind
	c.masks.replacer = nil
}

// Masked says in a sentence what is replaced by pseudonyms.
func (c *Cleaner) Masked() string {
	const limits = "\nNot replaced: paths of HTTP requests, images, keys of labels, names of ports and containers, " +
		"and names that stand alone in\na message or log line where no object that was read, setting or failure has them."
	switch {
	case c.addresses && c.masks.enabled:
		return "Addresses and names are pseudonyms." + limits
	case c.addresses:
		return "Addresses are pseudonyms."
	case c.masks.enabled:
		return "Names are pseudonyms." + limits
	}
	return "Names and addresses are those of the cluster."
}

var (
	word = regexp.MustCompile(`[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*`)
	// dotted are words with dots; what precedes and follows one decides whether it is a domain name.
	dotted = regexp.MustCompile(`[A-Za-z0-9_*-]+(?:\.[A-Za-z0-9_*-]+)+\.?|[A-Za-z0-9_-]+\.`)
)

// maskDomains returns a text with pseudonyms of paths and domain names.
func (c *Cleaner) maskDomains(text string) string {
	if !c.masks.enabled {
		return text
	}
	text = c.maskLiterals(text)
	var b strings.Builder
	kept := 0
	for _, at := range dotted.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		if !c.isDomain(name, text[:at[0]], text[at[1]:]) {
			continue
		}
		b.WriteString(text[kept:at[0]] + c.maskLabels(name))
		kept = at[1]
	}
	b.WriteString(text[kept:])
	return b.String()
}

// maskWords returns a text with pseudonyms of names that are words.
func (c *Cleaner) maskWords(text string) string {
	if len(c.masks.names) == 0 {
		return text
	}
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if _, masked := c.masks.names[w]; masked {
			return c.pseudonym("name", w)
		}
		return w
	})
}

// maskLiterals replaces the literals.
func (c *Cleaner) maskLiterals(text string) string {
	if len(c.masks.literals) == 0 {
		return text
	}
	if c.masks.replacer == nil {
		c.masks.replacer = newReplacer(maps.Keys(c.masks.literals), func(literal string) string {
			kind := c.masks.literals[literal]
			if kind != "path" {
				return c.pseudonym(kind, literal)
			}
			return c.pseudonym(kind, literal) + path.Ext(literal)
		})
	}
	return c.masks.replacer.Replace(text)
}

// maskLabels replaces the labels of a domain name, but not the cluster's own.
func (c *Cleaner) maskLabels(name string) string {
	labels := strings.Split(name, ".")
	for i, label := range labels {
		low := strings.ToLower(label)
		switch bare := strings.TrimLeft(low, "_"); {
		case label == "" || label == "*" || isKept(label) || isKept(low):
		case len(bare) == 0 || number.MatchString(bare):
		case c.maskDashed(label) != label:
			if c.addresses {
				labels[i] = c.maskDashed(label)
			}
		default:
			labels[i] = low[:len(low)-len(bare)] + c.pseudonym("name", bare)
		}
	}
	return strings.Join(labels, ".")
}
