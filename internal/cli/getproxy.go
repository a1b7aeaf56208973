package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/explain"
)

// proxyKinds are what a node's service proxy makes of Services.
var proxyKinds = []derivedKind{
	{name: "vips", others: []string{"vip"}, head: "SERVICE", of: "Services", view: proxyView, table: vipTable},
	{
		name: "backends", others: []string{"backend"}, head: "SERVICE", of: "Services", view: proxyView,
		table: backendTable,
	},
}

func vipTable(f *getFlags, pods *podapp.Inspector) derivedTable {
	t := derivedTable{
		columns: []string{"PORT", "ADDRESS", "PROTOCOL", "KIND", "POLICY", "ENDPOINTS", "LOCAL"}, wide: []string{"NOTE"},
	}
	for _, v := range pods.VIPs(f.node) {
		t.rows = append(t.rows, derivedRow{
			namespace: v.Namespace, name: v.Service, id: "vip/" + v.Address + "/" + strings.ToLower(v.Protocol), json: v,
			cells: []string{
				orNone(v.Port), v.Address, v.Protocol, v.Kind, v.Policy, strconv.Itoa(v.Endpoints), strconv.Itoa(v.Local),
			},
			wide: []string{orNone(v.Note)},
		})
	}
	return t
}

func backendTable(f *getFlags, pods *podapp.Inspector) derivedTable {
	t := derivedTable{
		columns: []string{"PORT", "ENDPOINT", "PROTOCOL", "USED-BY", "WHY-NOT"},
		wide:    []string{"POD", "NODE"},
	}
	for _, b := range pods.Backends(f.node) {
		t.rows = append(t.rows, derivedRow{
			namespace: b.Namespace, name: b.Service, id: "backend/" + b.Endpoint + "/" + strings.ToLower(b.Protocol), json: b,
			cells: []string{orNone(b.Port), b.Endpoint, b.Protocol, b.Used, orNone(b.Why)},
			wide:  []string{orNone(b.Pod), orNone(b.Node)},
		})
	}
	return t
}

// readProxy reads the cluster, as a service proxy does.
func (f *getFlags) readProxy(cmd *cobra.Command) (*podapp.Inspector, error) {
	l, err := load(cmd, &f.source, source.Whole)
	if err != nil {
		return nil, err
	}
	stderr := cmd.ErrOrStderr()
	switch {
	case f.node == "":
		fmt.Fprintln(stderr, "portolan: note: without --node NAME there are no node ports, and no endpoint is local")
	case !l.pods.HasNode(f.node):
		fmt.Fprintf(
			stderr, "portolan: warning: there is no Node %q: its zone and addresses are not known\n", explain.Plain(f.node),
		)
	}
	return l.pods, nil
}
