package dnswire

// Room is how many octets are left to use.
func (r *Response) Room() int { return r.limit - len(r.buf) }
