package upstream

// hasNothing reports whether there is nothing to read from a socket. The commands that are built for Windows do not
// serve.
func hasNothing(uintptr) bool { return false }
