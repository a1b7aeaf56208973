package dnswire

// Room returns how many octets are left below the limit.
func (r *Response) Room() int { return r.limit - len(r.buf) }
