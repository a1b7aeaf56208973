package app

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/live"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/test/await"
	testworld "portolan.dev/portolan/test/world"
)

// liveSituations selects the situations that are built with packets: a sample, all, or those with the text in their
// names.
var liveSituations = flag.String("live", "sample", "build these situations with packets: sample, all, or a part of a name")

// The waits of the live situations: for an answer, and for the programs to have the objects of a situation.
const (
	liveWait   = 1500 * time.Millisecond
	liveSettle = 40 * time.Second
	// sampled is every how many situations one is in the sample.
	sampled = 16
)

// unbuilt are situations that are not built with packets, and why.
var unbuilt = map[string]string{
	"the port of a headless Service is translated to another one":                 "the program would have to listen at another port",
	"an alias leads outside the cluster, where no policy of the client allows it": "the alias leads nowhere: with packets its name does not resolve",
	"the Secret of the listener has no key":                                       keepsCertificate,
	"the Secret of the listener has no certificate that can be read":              keepsCertificate,
}

const keepsCertificate = "a gateway that runs keeps the certificate that it had; one that starts has none"

// leastCompared is how many situations' first layers are compared with packets, at least, of all.
const leastCompared = 120

// TestSituationsLive: the situations, built with packets, fail as explain says: each layer that can be compared agrees
// with what packets see, and without the faults the client gets what it asks for.
func TestSituationsLive(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a cluster in network namespaces")
	}
	all := situations(t)
	r := newRig(t, all)
	results, found := make(map[string]string), 0
	for i := range all {
		s := &all[i]
		if !wanted(s.Name, i) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			text, compared := r.try(t, s)
			results[s.Name] = text
			if compared {
				found++
			}
			t.Log(text)
		})
	}
	t.Logf("the first layer was compared in %d of %d situations", found, len(results))
	if *liveSituations == "all" && found < leastCompared {
		t.Errorf("the first layer was compared in %d situations, want %d", found, leastCompared)
	}
	if *update && !t.Failed() {
		writeSeen(t, results)
	}
}

// writeSeen writes what was seen, beside what was seen of other situations.
func writeSeen(t *testing.T, results map[string]string) {
	t.Helper()
	all := seenLive(t)
	if *liveSituations == "all" || all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, results)
	text, err := yaml.Marshal(all)
	if err == nil {
		err = os.WriteFile(liveResults, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func wanted(name string, i int) bool {
	switch *liveSituations {
	case "sample":
		return i%sampled == 0
	case "all":
		return true
	}
	return strings.Contains(name, *liveSituations)
}

// rig is a world whose programs read the file of one situation after another.
type rig struct {
	*testworld.World
	base []map[string]any
	dir  string
}

// newRig returns a rig whose upstream DNS has the hosts that are not the cluster's, with the address of the gateway.
func newRig(t *testing.T, all []situation) *rig {
	t.Helper()
	r := &rig{base: baseObjects(t), dir: t.TempDir()}
	r.write(t, situationText(t, r.base, &situation{}))
	healthy := inspected(t, filepath.Join(r.dir, manifestFile))
	gateway := []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	names := make(map[string][]netip.Addr)
	for i := range all {
		for _, q := range []*question{&all[i].question, all[i].Instead} {
			if q == nil || !strings.Contains(q.To, "://") || strings.Contains(q.From, ".") {
				continue
			}
			if e := explainedIn(t, healthy, q); e.Name != nil && e.Name.NotKnown() {
				names[strings.TrimSuffix(e.Name.Name, ".")] = gateway
			}
		}
	}
	r.World = testworld.New(t, testworld.Options{
		Manifests: r.dir, Settings: "gateway: {publish: {service: infra/portolan-gateway}}", Names: names,
	})
	return r
}

// manifestFile is the file that the programs read.
const manifestFile = "cluster.yaml"

// write replaces the objects that the programs read, at once.
func (r *rig) write(t *testing.T, text []byte) {
	t.Helper()
	file := filepath.Join(r.dir, manifestFile)
	if err := os.WriteFile(file+".next", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

// try builds a situation after all was well, and returns what was seen of its first layer, and whether it was compared.
func (r *rig) try(t *testing.T, s *situation) (text string, compared bool) {
	t.Helper()
	if why := unbuilt[s.Name]; why != "" {
		return "not built: " + why, false
	}
	asked := &s.question
	if s.Instead != nil {
		asked = s.Instead
	}
	well := r.settle(t, &situation{}, asked, func(e *path.Explanation) bool { return e.Works() })
	if t.Failed() {
		t.Log(textOf(t, well))
		return "", false
	}
	// A gateway may send a request on a connection that policies have just cut, and wait.
	e := r.settle(t, s, &s.question, func(e *path.Explanation) bool {
		step := e.Step(s.First.Layer)
		return step == nil || step.Live == nil || !strings.HasPrefix(step.Live.Seen, "no response")
	})
	if t.Failed() {
		t.Log(textOf(t, e))
		return "", false
	}
	if s.First.State != path.NotKnown { // what the model does not know, packets may tell
		checkFaults(t, e, s)
	}
	step := e.Step(s.First.Layer)
	switch {
	case step == nil || step.Live == nil:
		return "not compared: nothing was sent", false
	case step.Live.Agrees == nil:
		return "not compared: " + step.Live.NotCompared, false
	}
	return untimed.ReplaceAllString(step.Live.Seen, ""), true
}

// untimed are the ends of certificates, which differ each time.
var untimed = regexp.MustCompile(` until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)

// settle has the programs read the objects of a situation, and explains a question until all layers agree with what
// packets see, and until it is as it should be.
func (r *rig) settle(t *testing.T, s *situation, q *question, should func(*path.Explanation) bool) (e *path.Explanation) {
	t.Helper()
	text := situationText(t, r.base, s)
	r.write(t, text)
	file := filepath.Join(t.TempDir(), manifestFile)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w := inspected(t, file)
	origin := r.origin(t, w, q)
	err := await.Within(liveSettle, func() error {
		e = r.explain(t, w, q, origin)
		switch {
		case e.Differs() != "":
			return fmt.Errorf("layer %s differs", e.Differs())
		case q == &s.question && s.First.State == "" && e.Cause != s.First.Layer:
			return fmt.Errorf("it is broken by %q, want %s: %s", e.Cause, s.First.Layer, e.Outcome)
		case !should(e):
			return fmt.Errorf("it is %s: %s", e.State, e.Outcome)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s from %s: %v", q.To, q.From, err)
	}
	return e
}

// origin returns where the client is in the world.
func (r *rig) origin(t *testing.T, w *world, q *question) *live.Origin {
	t.Helper()
	return r.originOf(clientOf(t, w, q))
}

// originOf returns where a client is in the world.
func (r *rig) originOf(client *connection.Client) *live.Origin {
	o := &live.Origin{From: client.String()}
	switch node := client.Node; {
	case client.Place == connection.Outside:
		addr := client.Addr
		if !addr.IsValid() {
			addr = netip.MustParseAddr("203.0.113.200")
		}
		o.Dialer = r.Outside(addr, node)
	case client.Place == connection.OnNode:
		o.Dialer = r.Node(node)
	case client.Subject.Finished():
		o.Why = "the Pod has finished, and sends nothing any more"
	case client.Subject.Spec.HostNetwork:
		o.Dialer = r.Node(client.Subject.Pod.Node)
	default:
		o.Dialer = r.Pod(client.Subject.Namespace, client.Subject.Name)
	}
	return o
}

// explain explains a question as the command does with --live.
func (r *rig) explain(t *testing.T, w *world, q *question, o *live.Origin) *path.Explanation {
	t.Helper()
	how := Packets{Sending: Sending{Wait: liveWait}, Unsafe: true, Origin: o}
	way, name := wayOf(t, w, q)
	ctx, cancel := context.WithTimeout(t.Context(), live.Budget)
	defer cancel()
	var e *path.Explanation
	var err error
	if name {
		e, err = w.LiveName(ctx, way.DNS, how)
	} else {
		e, err = w.Live(ctx, way, how)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}
