package forwarding

import "container/list"

// lru keeps the most recently used names.
type lru struct {
	size, weight int64 // the total weight limit, and the weight of one name
	used         *list.List
	places       map[uint32]*list.Element
}

func newLRU(size, weight int64) *lru {
	return &lru{size, weight, list.New(), make(map[uint32]*list.Element)}
}

func (l *lru) use(name uint32) (hit bool, err error) {
	if e, ok := l.places[name]; ok {
		l.used.MoveToFront(e)
		return true, nil
	}
	l.places[name] = l.used.PushFront(name)
	for int64(l.used.Len())*l.weight > l.size {
		delete(l.places, l.used.Remove(l.used.Back()).(uint32))
	}
	return false, nil
}
