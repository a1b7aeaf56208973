package path

import "slices"

// ExitLayer is the exit status of commands if the first layer is the first that is broken; the next ones are those of
// the layers after it.
const ExitLayer = 10

// Exit returns the exit status of a command that prints the explanation: that of the first layer that packets differ
// from, or else of the first that is broken; 1 if it is not known whether it works, and 0 if it does.
func (e *Explanation) Exit() int {
	switch {
	case e.Differs() != "":
		return exitOf(e.Differs())
	case e.State == Broken:
		return exitOf(e.Cause)
	case e.State == NotKnown:
		return 1
	}
	return 0
}

// ExitOfVerdict returns that of a command that prints what policies decide only: 1 if they deny the connection.
func (e *Explanation) ExitOfVerdict() int {
	switch {
	case e.Differs() != "":
		return exitOf(e.Differs())
	case !e.Connection.IsAllowed():
		return 1
	}
	return 0
}

func exitOf(l Layer) int { return ExitLayer + slices.Index(Layers(), l) }
