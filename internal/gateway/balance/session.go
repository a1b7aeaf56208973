package balance

// All returns the endpoints, which must not be changed.
func (p *Pool) All() []*Endpoint { return *p.endpoints.Load() }

// Use is Pick for one endpoint. It reports whether requests may use it: it is of the Pool, and not ejected.
func (p *Pool) Use(e *Endpoint) bool {
	if e.ejected() || !p.Has(e) {
		return false
	}
	e.underWay.Add(1)
	return true
}
