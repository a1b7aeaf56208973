package nft

// Plain has t use plain tables, as on a kernel that has no others.
func (t *Table) Plain() *Table {
	t.plain = true
	return t
}

// Deafen has t keep hardly any message for Watch, after its first Sync.
func (t *Table) Deafen() error { return t.listener.SetReadBuffer(1) }

// The names and numbers that tests need.
const (
	BridgeSuffix = bridgeSuffix
	ProbeSuffix  = probeSuffix
	MaxClients   = maxClients
)
