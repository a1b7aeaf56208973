package status

// list is a doubly linked list, of which any element can be removed. The zero list is empty.
type list[T any] struct {
	first, last *element[T]
}

// element is an element of a list.
type element[T any] struct {
	value          T
	previous, next *element[T]
}

// push adds a value at the end.
func (l *list[T]) push(value T) *element[T] {
	e := &element[T]{value: value, previous: l.last}
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	return e
}

// remove removes an element.
func (l *list[T]) remove(e *element[T]) {
	if e.previous == nil {
		l.first = e.next
	} else {
		e.previous.next = e.next
	}
	if e.next == nil {
		l.last = e.previous
	} else {
		e.next.previous = e.previous
	}
}

func (l *list[T]) empty() bool { return l.first == nil }
