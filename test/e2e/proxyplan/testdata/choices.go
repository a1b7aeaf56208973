package proxy

import (
	"encoding/json"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// recordCategorize returns what CategorizeEndpoints does, and writes a record of it.
func recordCategorize(
	t *testing.T, all []Endpoint, port ServicePort, node string, labels map[string]string,
) (cluster, local, usable []Endpoint, anywhere bool) {
	cluster, local, usable, anywhere = CategorizeEndpoints(all, port, node, labels)
	type endpoint struct {
		Address                     string
		Ready, Serving, Terminating bool
		Local                       bool
		Zones, Nodes                []string
	}
	record := struct {
		Test, Node, Zone                         string
		InternalLocal, ExternalLocal, Accessible bool
		Endpoints                                []endpoint
		Cluster, LocalOnly                       []string
		Anywhere                                 bool
	}{
		Test: t.Name(), Node: node, Zone: labels[v1.LabelTopologyZone],
		InternalLocal: port.InternalPolicyLocal(), ExternalLocal: port.ExternalPolicyLocal(),
		Accessible: port.ExternallyAccessible(), Anywhere: anywhere,
	}
	for _, e := range all {
		record.Endpoints = append(record.Endpoints, endpoint{
			e.String(), e.IsReady(), e.IsServing(), e.IsTerminating(), e.IsLocal(),
			e.ZoneHints().UnsortedList(), e.NodeHints().UnsortedList(),
		})
	}
	for _, e := range cluster {
		record.Cluster = append(record.Cluster, e.String())
	}
	for _, e := range local {
		record.LocalOnly = append(record.LocalOnly, e.String())
	}
	f, err := os.OpenFile(os.Getenv("PORTOLAN_RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = json.NewEncoder(f).Encode(record)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cluster, local, usable, anywhere
}
