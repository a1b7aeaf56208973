package object

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/internal/cluster"
)

// containerMentions returns the names of Services in the environment, the command and the
// arguments of containers, each name once. list is the field that has the containers.
func containerMentions(list string, containers []corev1.Container) (all []cluster.Mention) {
	for i := range containers {
		c, at := &containers[i], fmt.Sprintf("%s[%d]", list, i)
		for k := range c.Env {
			all = append(all, mentions(fmt.Sprintf("%s.env[%d].value", at, k), c.Env[k].Value)...)
		}
		for k, text := range c.Command {
			all = append(all, mentions(fmt.Sprintf("%s.command[%d]", at, k), text)...)
		}
		for k, text := range c.Args {
			all = append(all, mentions(fmt.Sprintf("%s.args[%d]", at, k), text)...)
		}
	}
	return all
}

// mentions returns the names in a text that have the form of a Service's name: at least two
// labels before svc, and perhaps a domain after it. Left out are names with variables or
// formats, such as $(NAME).shop.svc, with placeholders, such as __NAME__.shop.svc, and the
// files of paths, such as /api/Company.Product.svc.
func mentions(field, text string) (all []cluster.Mention) {
	if !strings.Contains(text, ".svc") {
		return nil
	}
	for end := -1; end < len(text); {
		start := end + 1
		end = start + nameLength(text[start:])
		name := strings.ToLower(strings.TrimSuffix(text[start:end], "."))
		labels := strings.Split(name, ".")
		const before = 2 // SERVICE.NAMESPACE
		if i := slices.Index(labels, "svc"); i < before || slices.ContainsFunc(labels, malformed) {
			continue
		}
		if partial(text[:start], text[end:]) || inPath(text[:start]) {
			continue
		}
		if !slices.ContainsFunc(all, func(m cluster.Mention) bool { return m.Name == name }) {
			all = append(all, cluster.Mention{Field: field, Name: name})
		}
	}
	return all
}

// nameLength returns the number of octets before the first one that a name cannot contain.
func nameLength(text string) int {
	if n := strings.IndexFunc(text, func(r rune) bool { return !inName(r) }); n >= 0 {
		return n
	}
	return len(text)
}

// inName reports whether a name can contain the character.
func inName(r rune) bool {
	return r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// variable has the octets at the ends of variables, formats and patterns.
const variable = `%$(){}<>*\`

// partial reports whether a name between two texts is probably a part of one: a variable,
// a format or a pattern is next to it. A variable after a name counts only where the
// text does not show that the name begins there.
func partial(before, after string) bool {
	if before != "" && strings.Contains(variable, before[len(before)-1:]) {
		return true
	}
	begins := strings.HasSuffix(before, "://") || before != "" && strings.Contains("@=,\"'`", before[len(before)-1:])
	return after != "" && strings.Contains(variable, after[:1]) && !begins
}

// inPath reports whether what follows the text is in a path: it is after a slash, but not
// after the two that are before a host.
func inPath(before string) bool {
	return strings.HasSuffix(before, "/") && !strings.HasSuffix(before, "//")
}

// malformed reports whether a label is none, as at the place of a variable, or a placeholder
// such as __NAME__ or _NAME_.
func malformed(label string) bool {
	return label == "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
		strings.Contains(label, "__") || strings.HasPrefix(label, "_") && strings.HasSuffix(label, "_")
}
