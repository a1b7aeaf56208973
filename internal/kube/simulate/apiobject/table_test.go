package apiobject

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/json"

	"portolan.dev/portolan/internal/cluster"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// row returns the cells of an object given as JSON.
func row[T any](t *testing.T, kind cluster.Kind, c Columns, object string) string {
	t.Helper()
	o := any(new(T))
	if strict, err := json.UnmarshalStrict([]byte(object), o); err != nil || len(strict) > 0 {
		t.Fatalf("%s: %v %v", object, err, strict)
	}
	c.Now = now
	table := Table(kind, []Object{o.(Object)}, c)
	if len(table) != 2 || len(table[0]) != len(table[1]) {
		t.Fatalf("%s: the table is %q", object, table)
	}
	return strings.Join(table[1], "|")
}

// TestServiceRow checks the columns of a Service against kubectl's.
func TestServiceRow(t *testing.T) {
	for claim, test := range map[string]struct {
		columns      Columns
		object, want string
	}{
		"plain": {object: `{"metadata":{"name":"a"},"spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","fd00::1"],"ports":[{"port":80,"protocol":"TCP"},{"port":53,"protocol":"UDP"}]}}`,
			want: "a|ClusterIP|10.0.0.1|<none>|80/TCP,53/UDP|<unknown>"},
		"node ports":         {object: `{"metadata":{"name":"a"},"spec":{"type":"NodePort","clusterIPs":["10.0.0.1"],"externalIPs":["192.0.2.1","192.0.2.2"],"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"}]}}`, want: "a|NodePort|10.0.0.1|192.0.2.1,192.0.2.2|80:30080/TCP|<unknown>"},
		"no load balancer":   {object: `{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer","clusterIPs":["10.0.0.1"]}}`, want: "a|LoadBalancer|10.0.0.1|<pending>|<none>|<unknown>"},
		"load balancers":     {object: `{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer","externalIPs":["192.0.2.1"]},"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.9"},{"hostname":"b"}]}}}`, want: "a|LoadBalancer|<none>|198.51.100.9,b,192.0.2.1|<none>|<unknown>"},
		"a long name":        {object: `{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"hostname":"balancer.example.com"}]}}}`, want: "a|LoadBalancer|<none>|balancer.exam...|<none>|<unknown>"},
		"a long name, wide":  {columns: Columns{Wide: true}, object: `{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer","selector":{"b":"2","a":"1"}},"status":{"loadBalancer":{"ingress":[{"hostname":"balancer.example.com"}]}}}`, want: "a|LoadBalancer|<none>|balancer.example.com|<none>|<unknown>|a=1,b=2"},
		"external name":      {object: `{"metadata":{"name":"a"},"spec":{"type":"ExternalName","externalName":"example.com"}}`, want: "a|ExternalName|<none>|example.com|<none>|<unknown>"},
		"headless":           {columns: Columns{Wide: true}, object: `{"metadata":{"name":"a"},"spec":{"type":"ClusterIP","clusterIPs":["None"]}}`, want: "a|ClusterIP|None|<none>|<none>|<unknown>|<none>"},
		"an age, namespaced": {columns: Columns{Namespace: true}, object: `{"metadata":{"name":"a","namespace":"b","creationTimestamp":"2026-11-20T09:00:00Z"},"spec":{"type":"ClusterIP"}}`, want: "b|a|ClusterIP|<none>|<none>|<none>|2d3h"},
	} {
		if got := row[corev1.Service](t, cluster.KindService, test.columns, test.object); got != test.want {
			t.Errorf("%s: got %s, want %s", claim, got, test.want)
		}
	}
}

// TestSliceRow checks that three ports and addresses are shown, and the number of the
// others.
func TestSliceRow(t *testing.T) {
	for claim, test := range map[string]struct{ object, want string }{
		"three":     {`{"metadata":{"name":"a"},"addressType":"IPv4","ports":[{"port":1},{"port":2},{"port":3}],"endpoints":[{"addresses":["10.0.0.1","10.0.0.2"]},{"addresses":["10.0.0.3"]}]}`, "a|IPv4|1,2,3|10.0.0.1,10.0.0.2,10.0.0.3|<unknown>"},
		"more":      {`{"metadata":{"name":"a"},"addressType":"IPv4","ports":[{"port":1},{"port":2},{"port":3},{"port":4}],"endpoints":[{"addresses":["10.0.0.1","10.0.0.2"]},{"addresses":["10.0.0.3"]},{"addresses":["10.0.0.4"]},{"addresses":["10.0.0.5"]}]}`, "a|IPv4|1,2,3 + 1 more...|10.0.0.1,10.0.0.2,10.0.0.3 + 2 more...|<unknown>"},
		"none":      {`{"metadata":{"name":"a"},"addressType":"IPv6","ports":null,"endpoints":null}`, "a|IPv6|<unset>|<unset>|<unknown>"},
		"all ports": {`{"metadata":{"name":"a"},"addressType":"IPv6","ports":[{}],"endpoints":null}`, "a|IPv6|*|<unset>|<unknown>"},
	} {
		if got := row[discoveryv1.EndpointSlice](t, cluster.KindEndpointSlice, Columns{}, test.object); got != test.want {
			t.Errorf("%s: got %s, want %s", claim, got, test.want)
		}
	}
}

// podJSON returns a Pod with two containers and an init container.
func podJSON(status string) string {
	return `{"metadata":{"name":"a"},"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"c"},{"name":"d"}]},"status":` + status + `}`
}

// TestPodRow checks that READY, STATUS and RESTARTS are derived from the status as by
// kubectl.
func TestPodRow(t *testing.T) {
	const running = `"state":{"running":{}},"ready":true`
	for claim, test := range map[string]struct{ object, want string }{
		"no container status":        {podJSON(`{"phase":"Pending"}`), "0/2|Pending|0"},
		"running":                    {podJSON(`{"phase":"Running","containerStatuses":[{"name":"c",` + running + `},{"name":"d",` + running + `,"restartCount":2}]}`), "2/2|Running|2"},
		"restarted":                  {podJSON(`{"phase":"Running","containerStatuses":[{"name":"c",` + running + `,"restartCount":1,"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-11-22T11:55:00Z"}}}]}`), "1/2|Running|1 (5m ago)"},
		"crashing":                   {podJSON(`{"phase":"Running","containerStatuses":[{"name":"c",` + running + `},{"name":"d","state":{"waiting":{"reason":"CrashLoopBackOff"}},"restartCount":9}]}`), "1/2|CrashLoopBackOff|9"},
		"initializing":               {podJSON(`{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"running":{}},"restartCount":1}],"containerStatuses":[{"name":"c","state":{"waiting":{"reason":"PodInitializing"}}}]}`), "0/2|Init:0/1|1"},
		"init failed":                {podJSON(`{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":3}}}]}`), "0/2|Init:ExitCode:3|0"},
		"init waiting":               {podJSON(`{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"waiting":{"reason":"ErrImagePull"}}}]}`), "0/2|Init:ErrImagePull|0"},
		"init done":                  {podJSON(`{"phase":"Running","initContainerStatuses":[{"name":"i","restartCount":4,"state":{"terminated":{"exitCode":0}}}],"containerStatuses":[{"name":"c",` + running + `}]}`), "1/2|Running|0"},
		"completed":                  {podJSON(`{"phase":"Succeeded","containerStatuses":[{"name":"c","state":{"terminated":{"reason":"Completed","exitCode":0}}}]}`), "0/2|Completed|0"},
		"killed":                     {podJSON(`{"phase":"Failed","containerStatuses":[{"name":"c","state":{"terminated":{"signal":9,"exitCode":137}}}]}`), "0/2|Signal:9|0"},
		"evicted":                    {podJSON(`{"phase":"Failed","reason":"Evicted"}`), "0/2|Evicted|0"},
		"gated":                      {podJSON(`{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}`), "0/2|SchedulingGated|0"},
		"one container completed":    {podJSON(`{"phase":"Running","containerStatuses":[{"name":"c","state":{"terminated":{"reason":"Completed","exitCode":0}}},{"name":"d",` + running + `}]}`), "1/2|NotReady|0"},
		"terminating":                {`{"metadata":{"name":"a","deletionTimestamp":"2026-11-22T11:00:00Z"},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Running"}}`, "0/1|Terminating|0"},
		"ready, no container status": {podJSON(`{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`), "2/2|Running|0"},
		"simulated":                  {`{"metadata":{"name":"a","annotations":{"portolan.dev/simulated":"true"}},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, "1/1|Simulated|0"},
		"sidecar":                    {`{"metadata":{"name":"a"},"spec":{"initContainers":[{"name":"i","restartPolicy":"Always"}],"containers":[{"name":"c"}]},"status":{"phase":"Running","initContainerStatuses":[{"name":"i","started":true,"restartCount":3,` + running + `}],"containerStatuses":[{"name":"c",` + running + `}]}}`, "2/2|Running|3"},
		"sidecar starts":             {`{"metadata":{"name":"a"},"spec":{"initContainers":[{"name":"i","restartPolicy":"Always"}],"containers":[{"name":"c"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","started":false,"state":{"running":{}}}]}}`, "0/2|Init:0/1|0"},
	} {
		want := "a|" + test.want + "|<unknown>"
		if got := row[corev1.Pod](t, cluster.KindPod, Columns{}, test.object); got != want {
			t.Errorf("%s: got %s, want %s", claim, got, want)
		}
	}
	const object = `{"metadata":{"name":"a"},"spec":{"nodeName":"n","readinessGates":[{"conditionType":"x"},{"conditionType":"y"}],"containers":[{"name":"c"}]},"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}],"conditions":[{"type":"x","status":"True"}]}}`
	if got, want := row[corev1.Pod](t, cluster.KindPod, Columns{Wide: true}, object), "a|0/1|Running|0|<unknown>|10.0.0.1|n|<none>|1/2"; got != want {
		t.Errorf("wide: got %s, want %s", got, want)
	}
}

// TestTableHeaders checks the headers against kubectl's.
func TestTableHeaders(t *testing.T) {
	for kind, want := range map[cluster.Kind]string{
		cluster.KindService:       "NAMESPACE NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR",
		cluster.KindEndpointSlice: "NAMESPACE NAME ADDRESSTYPE PORTS ENDPOINTS AGE",
		cluster.KindPod:           "NAMESPACE NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
	} {
		if got := strings.Join(Table(kind, nil, Columns{Namespace: true, Wide: true})[0], " "); got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
	}
}
