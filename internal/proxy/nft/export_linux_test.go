package nft

// Plain has t use plain tables, as on a kernel that has no others.
func (t *Table) Plain() *Table {
	t.plain = true
	return t
}
