package nfnetlink

// Between has a function be called while a large batch is committed outside of the group, before and after
// it.
func (l *Listener) Between(do func()) { l.between = do }
