package compile

import (
	"cmp"
	"strings"
)

// intersection returns the hostname of the names that both of two hostnames stand for, and whether
// there are any (HTTPRouteSpec.hostnames): "" stands for all names, "*." and a name for all below it.
func intersection(a, b string) (hostname string, ok bool) {
	switch {
	case a == "" || a == b:
		return b, true
	case b == "":
		return a, true
	case covers(a, b):
		return b, true
	case covers(b, a):
		return a, true
	}
	return "", false
}

// covers reports whether a wildcard stands for all that another hostname stands for.
func covers(wildcard, hostname string) bool {
	above, ok := strings.CutPrefix(wildcard, "*")
	return ok && strings.HasSuffix(hostname, above) && hostname != above
}

// specificity is negative if a is more specific than b, of two hostnames that a name has: one without a wildcard
// precedes, then the longer one (HTTPRouteSpec.hostnames).
func specificity(a, b string) int {
	rank := func(hostname string) int {
		switch {
		case hostname == "":
			return 2
		case strings.HasPrefix(hostname, "*"):
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(b), len(a)))
}
