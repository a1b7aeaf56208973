package compile

import "strings"

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
