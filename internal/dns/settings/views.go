package settings

import (
	"errors"
	"slices"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/respond"
)

var errNoClients = errors.New("no clients; clients without a view see everything")

// compileViews compiles the views; served are the zones that there are.
func (d *DNS) compileViews(made *Compiled, served []dnsname.Name) error {
	for i, v := range d.Views {
		clients, err := parsePrefixes(v.Clients)
		if err == nil && len(clients) == 0 {
			err = errNoClients
		}
		if err != nil {
			return key.ItemErrorf("dns.views.clients", i, "%w", err)
		}
		view := respond.View{Clients: clients, Forward: v.Forward}
		for _, text := range v.Zones {
			name, err := dnsname.Parse(text)
			switch {
			case err != nil:
				return key.ItemErrorf("dns.views.zones", i, "%w", err)
			case !slices.Contains(served, name):
				return key.ItemErrorf("dns.views.zones", i, "%s is not a zone of this server", name)
			}
			view.Zones = append(view.Zones, name)
		}
		made.Views = append(made.Views, view)
	}
	return nil
}
