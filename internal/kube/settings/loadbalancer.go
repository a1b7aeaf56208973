package settings

import (
	"errors"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/network/pool"
)

// DefaultLoadBalancerClass is the spec.loadBalancerClass of Services that get addresses.
const DefaultLoadBalancerClass = "portolan.dev/lb"

// LoadBalancer configures the addresses of Services of type LoadBalancer.
type LoadBalancer struct {
	// Class is the loadBalancerClass of the Services that get addresses. WithoutClass: those without one get some, too.
	Class        string `yaml:"class"`
	WithoutClass bool   `yaml:"withoutClass"`
	// Pools are the addresses, in the order in which they are used.
	Pools []Pool `yaml:"pools"`
}

// Pool is a set of addresses.
type Pool struct {
	Name string `yaml:"name"`
	// Ranges are the addresses, Reserved those of them that are only given to Services that request them.
	Ranges   []string `yaml:"ranges"`
	Reserved []string `yaml:"reserved"`
	// Namespaces and the selectors, of labels of Namespaces and of Services, limit the Services that may have addresses;
	// empty ones do not.
	Namespaces        []string `yaml:"namespaces"`
	NamespaceSelector string   `yaml:"namespaceSelector"`
	ServiceSelector   string   `yaml:"serviceSelector"`
	// Automatic: Services get addresses that request neither one nor the pool.
	Automatic bool `yaml:"automatic"`
}

const poolsKey = "controller.loadBalancer.pools"

// compile returns the pools. Its error is a *key.Error.
func (l *LoadBalancer) compile() (made pool.Config, err error) {
	made = pool.Config{Class: l.Class, WithoutClass: l.WithoutClass}
	if l.Class == "" && !l.WithoutClass {
		return made, key.Errorf("controller.loadBalancer.class", "is empty, and withoutClass is false: no Service would get "+
			"an address")
	}
	for i := range l.Pools {
		p, field, err := l.Pools[i].compile()
		if err != nil {
			return made, key.ItemErrorf(poolsKey+"."+field, i, "%w", err)
		}
		made.Pools = append(made.Pools, p)
	}
	if err := made.Check(); err != nil {
		return made, key.Errorf(poolsKey, "%w", err)
	}
	return made, nil
}

// compile returns the pool, or the name of the key that is wrong.
func (p *Pool) compile() (made pool.Pool, field string, err error) {
	made = pool.Pool{Name: p.Name, Namespaces: p.Namespaces, Automatic: p.Automatic}
	switch {
	case p.Name == "":
		return made, "name", errors.New("is empty")
	case slices.Contains(p.Namespaces, ""):
		return made, "namespaces", errors.New("one is empty")
	}
	if made.Ranges, err = compileRanges(p.Ranges); err != nil {
		return made, "ranges", err
	}
	if made.Reserved, err = compileRanges(p.Reserved); err != nil {
		return made, "reserved", err
	}
	if made.NamespaceSelector, err = compileSelector(p.NamespaceSelector); err != nil {
		return made, "namespaceSelector", err
	}
	made.ServiceSelector, err = compileSelector(p.ServiceSelector)
	return made, "serviceSelector", err
}

func compileRanges(texts []string) (all []pool.Range, err error) {
	for _, text := range texts {
		r, err := pool.ParseRange(text)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// compileSelector returns a selector; nil for none.
func compileSelector(text string) (*cluster.Selector, error) {
	if text == "" {
		return nil, nil
	}
	return object.ParseSelector(text)
}
