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
// labels before svc, and perhaps a domain after it. Names with variables, such as
// $(NAME).shop.svc, are left out.
func mentions(field, text string) (all []cluster.Mention) {
	if !strings.Contains(text, ".svc") {
		return nil
	}
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool { return !inName(r) }) {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		labels := strings.Split(name, ".")
		const before = 2 // SERVICE.NAMESPACE
		if i := slices.Index(labels, "svc"); i < before || slices.ContainsFunc(labels, malformed) {
			continue
		}
		if !slices.ContainsFunc(all, func(m cluster.Mention) bool { return m.Name == name }) {
			all = append(all, cluster.Mention{Field: field, Name: name})
		}
	}
	return all
}

// inName reports whether a name can contain the character.
func inName(r rune) bool {
	return r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// malformed reports whether a label is none, as at the place of a variable.
func malformed(label string) bool {
	return label == "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-")
}
