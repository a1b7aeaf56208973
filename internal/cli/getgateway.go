package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/simulate/apiobject"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
)

// gatewayViews are what a gateway makes of HTTPRoutes, Gateways and Ingresses.
var gatewayViews = []derivedKind{
	{
		name:   "routes",
		others: []string{"route"},
		head:   "NAME",
		of:     "HTTPRoutes",
		view:   gatewayView,
		table:  routeTable,
	},
	{
		name: "gateways", others: []string{"gateway", "gtw"}, head: "NAME", of: "Gateways", view: gatewayView,
		table: gatewayTable,
	},
	{
		name: "ingresses", others: []string{"ingress", "ing"}, head: "NAME", of: "Ingresses", view: gatewayView,
		table: ingressTable,
	},
}

// readGateway reads the cluster, as a gateway does.
func (f *getFlags) readGateway(cmd *cobra.Command) (*podapp.Inspector, error) {
	if f.node != "" {
		return nil, errors.New("--node goes with vips and backends")
	}
	f.source.also = gatewayKinds
	f.source.matters = append([]cluster.Kind{
		cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindIngress,
	}, f.source.also...)
	l, err := load(cmd, &f.source, source.Whole)
	if err != nil {
		return nil, err
	}
	return l.pods, nil
}

// listCell returns a list as a cell: the first ones and how many there are, as kubectl prints hosts.
func listCell(all []string, none string) string {
	const most = 3
	if len(all) == 0 {
		return none
	}
	text := strings.Join(all[:min(len(all), most)], ",")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" + %d more...", more)
	}
	return text
}

func routeTable(_ *getFlags, pods *podapp.Inspector) derivedTable {
	t := derivedTable{
		columns: []string{"HOSTNAMES", "PARENTS", "ACCEPTED", "RULES", "BACKENDS", "AGE"}, wide: []string{"PROBLEMS"},
	}
	for _, r := range pods.Routes() {
		var parents []string
		for _, p := range r.Parents {
			parents = append(parents, p.Name)
		}
		backends := fmt.Sprintf("%d/%d", r.Ready, r.Backends)
		if r.Accepted == "" { // nobody counted
			backends = "<unknown>"
		}
		t.rows = append(t.rows, derivedRow{
			namespace: r.Namespace, name: r.Name, id: apiobject.Prefix(cluster.KindHTTPRoute) + "/" + r.Name, json: r,
			cells: []string{
				listCell(r.Hostnames, "*"), listCell(parents, "<none>"), orNone(r.Accepted), strconv.Itoa(r.Rules),
				backends, apiobject.Age(r.Created, time.Now()),
			},
			wide: []string{orNone(strings.Join(r.Problems, "; "))},
		})
	}
	return t
}

func gatewayTable(_ *getFlags, pods *podapp.Inspector) derivedTable {
	t := derivedTable{
		columns: []string{"CLASS", "ADDRESSES", "LISTENERS", "ACCEPTED", "PROGRAMMED", "ROUTES", "AGE"},
		wide:    []string{"PROBLEMS"},
	}
	for _, g := range pods.Gateways() {
		var listeners []string
		for _, l := range g.Listeners {
			listeners = append(listeners, fmt.Sprintf("%s:%d", l.Name, l.Port))
		}
		programmed := g.Programmed
		if programmed == "" {
			programmed = "<unknown>"
		}
		t.rows = append(t.rows, derivedRow{
			namespace: g.Namespace, name: g.Name, id: apiobject.Prefix(cluster.KindGateway) + "/" + g.Name, json: g,
			cells: []string{
				orNone(g.Class), listCell(g.Addresses, "<none>"), listCell(listeners, "<none>"), orNone(g.Accepted), programmed,
				strconv.Itoa(g.Routes), apiobject.Age(g.Created, time.Now()),
			},
			wide: []string{orNone(strings.Join(g.Problems, "; "))},
		})
	}
	return t
}

func ingressTable(_ *getFlags, pods *podapp.Inspector) derivedTable {
	t := derivedTable{
		columns: []string{"CLASS", "HOSTS", "ADDRESS", "PORTS", "PROBLEMS", "AGE"}, wide: []string{"WHY"},
	}
	for _, i := range pods.Ingresses() {
		var ports []string
		for _, p := range i.Ports {
			ports = append(ports, strconv.Itoa(int(p)))
		}
		problems := strconv.Itoa(len(i.Problems))
		if !i.Served {
			problems = "not served"
		}
		t.rows = append(t.rows, derivedRow{
			namespace: i.Namespace, name: i.Name, id: apiobject.Prefix(cluster.KindIngress) + "/" + i.Name, json: i,
			cells: []string{
				orNone(i.Class), listCell(i.Hosts, "*"), listCell(i.Addresses, ""), listCell(ports, ""), problems,
				apiobject.Age(i.Created, time.Now()),
			},
			wide: []string{orNone(strings.Join(i.Problems, "; "))},
		})
	}
	return t
}
