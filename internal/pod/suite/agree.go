package suite

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/pod/peer"
)

// deciders are the kinds of what decides, as Deciders names them.
var deciders = []string{"NetworkPolicy", "ClusterNetworkPolicy", "httproute", "grpcroute", "ingress"}

// by reads what decides: a kind with a name, in which the kind's case does not matter.
func (r *reader) by(n *yaml.Node) string {
	text := r.word(n, "by")
	kind, rest, _ := strings.Cut(text, " ")
	at := slices.IndexFunc(deciders, func(d string) bool { return strings.EqualFold(d, kind) })
	name, _, _ := strings.Cut(rest, " ")
	switch {
	case text == "": // which is an error already
		return ""
	case at < 0:
		r.fail(n, "by: %q does not begin with a kind: write NetworkPolicy %s, or %s in its place", text, text,
			strings.Join(deciders[1:], ", "))
		return text
	case deciders[at] == "ClusterNetworkPolicy" && (name == "" || strings.Contains(name, "/")):
		r.fail(n, "by: %q has no name: write ClusterNetworkPolicy NAME", text)
	case deciders[at] != "ClusterNetworkPolicy" && !strings.Contains(name, "/"):
		r.fail(n, "by: %q has no namespace: write %s NAMESPACE/NAME", text, deciders[at])
	}
	return deciders[at] + " " + rest
}

// agree refuses parts of a test that no cluster makes hold together, given their nodes.
func (r *reader) agree(t *Test, at map[string]*yaml.Node) {
	for i, to := range t.To {
		if why := t.disagrees(to); why != "" {
			r.fail(item(at["to"], i), "to: %s", why)
			return
		}
	}
	if !slices.ContainsFunc(t.To, isName) {
		return
	}
	for i, from := range t.From {
		if place, _, _ := strings.Cut(from, "/"); isPlace(place) {
			r.fail(item(at["from"], i), "from: %s is no Pod, and looks up no name: write a Pod, such as shop/web-0, or "+
				"connect, to: NAME:PORT", from)
			return
		}
	}
	if t.By != "" {
		r.fail(at["by"], "by: no policy and no route decides on a lookup: write to: NAME:PORT to connect")
	}
}

// item returns an item of a list; of a text, it is that.
func item(n *yaml.Node, i int) *yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content[i]
	}
	return n
}

// disagrees returns why a target can never give what is expected; empty if it can.
func (t *Test) disagrees(to string) string {
	switch o := t.Expect.Outcome; {
	case o == Resolves || o == Unresolved || peer.IsURL(to):
		return ""
	case o == Status || o == Redirect || o == Backend && isName(to):
		return fmt.Sprintf("%q is no URL, which has the outcome %s: write %s", to, o, urlOf(to))
	case isName(to):
		return fmt.Sprintf("%q has no port, and is looked up only: write %s:80 to connect, or expect: resolves", to, to)
	}
	return ""
}

// urlOf returns an example of a URL for a target.
func urlOf(to string) string {
	if isName(to) {
		return "http://" + to + "/"
	}
	return "http://web.shop/"
}

// isPlace reports whether the beginning of a client names one that is no Pod.
func isPlace(text string) bool {
	return text == peer.Node || text == peer.Outside || peer.IsAddress(text)
}
