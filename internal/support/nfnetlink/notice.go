package nfnetlink

// Notice is what a Listener reports of a table. Comparing the table repairs it.
type Notice uint8

// The notices.
const (
	Changed Notice = iota // another socket changed the table
	Lost                  // messages were lost: one may have
)
