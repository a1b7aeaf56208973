package podnetwork

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/test/await"
)

// away is an API server that cannot be reached.
var away = apitest.Fault{HangUp: true}

// TestAPIAway: Pods start and end while the API server is away, for however long: nothing waits for it, and the
// policies that the agent knows hold. A Pod that the agent does not know does not start.
func TestAPIAway(t *testing.T) {
	n := newPolicedNode(t, "")
	if n == nil {
		return
	}
	api := n.serveAPI("")
	n.start()
	list := n.usable()
	n.startClient(list)
	before := n.state()
	const count = 20
	pods := n.newPods(count)
	for what, fault := range map[string]apitest.Fault{
		"cannot be reached": away,
		"does not answer":   {Silent: true},
		"refuses requests":  {Status: http.StatusServiceUnavailable},
	} {
		n.lose(api, fault)
		if _, errs := each(pods, func(p pod) error { return n.startsAtOnce(list, p) }); len(errs) > 0 {
			t.Errorf("the API server %s: %d of %d Pods: %v", what, len(errs), count, errs[0])
		}
		if _, errs := each(pods, func(p pod) error { return n.del(list, p) }); len(errs) > 0 {
			t.Errorf("the API server %s: %d of %d Pods do not end: %v", what, len(errs), count, errs[0])
		}
		n.wantState(before)
		n.awaitLog("kubernetes api responds again", func() { api.Misbehave(apitest.Fault{}) })
	}
	n.lose(api, away)
	unknown := pod{name: "unknown", ns: pods[0].ns, hostPort: pods[0].hostPort}
	if _, err := n.add(list, unknown); err == nil || !strings.Contains(err.Error(), "has not told this agent of the Pod yet") {
		t.Errorf("a Pod that the agent does not know: %v, want that it does not start", err)
	}
	n.wantState(before)
}

// startsAtOnce starts a Pod, and returns an error if it waited, or its policies do not hold.
func (n *node) startsAtOnce(list *libcni.NetworkConfigList, p pod) error {
	const least = 5 * time.Second // of what waits for the cluster to be known
	begin := time.Now()
	addrs, err := n.add(list, p)
	if err != nil {
		return err
	}
	if took := time.Since(begin); took > least {
		return fmt.Errorf("it starts after %v", took)
	}
	return n.serves(p, addrs)
}

// TestStartWithoutAPI: the agent is killed and starts while the API server is away. Pods keep their network and their
// policies; none starts, and those that end do so when the runtime repeats DEL.
func TestStartWithoutAPI(t *testing.T) {
	n := newPolicedNode(t, "")
	if n == nil {
		return
	}
	api := n.serveAPI("")
	agent := n.start()
	list := n.usable()
	n.startClient(list)
	before := n.state()
	old, fresh := n.newPod(0), n.newPod(1)
	addrs, err := n.add(list, old)
	must(t, err)
	n.lose(api, away)
	agent.Stop(0)
	n.awaitLog("kubernetes api can't be read", func() { n.start() })
	must(t, n.serves(old, addrs))
	if _, err := n.add(list, fresh); err == nil {
		t.Error("a Pod starts although the cluster is not known")
	}
	if err := n.cni.GetStatusNetworkList(t.Context(), list); err == nil {
		t.Error("STATUS says that Pods can start although the cluster is not known")
	}
	await.NoError(t, func() error { return n.del(list, old) })
	api.Misbehave(apitest.Fault{})
	n.usable()
	must(t, n.startsAtOnce(list, fresh))
	must(t, n.del(list, fresh))
	n.wantState(before)
}

// TestStartFromSnapshot: with a snapshot, Pods start and end, too.
func TestStartFromSnapshot(t *testing.T) {
	n := newPolicedNode(t, "")
	if n == nil {
		return
	}
	snapshot := n.path("snapshot")
	api := n.serveAPI("snapshot: {file: " + snapshot + "}")
	agent := n.start()
	list := n.usable()
	n.startClient(list)
	before := n.state()
	old, fresh := n.newPod(0), n.newPod(1)
	addrs, err := n.add(list, old)
	must(t, err)
	await.NoError(t, func() error {
		_, err := os.Stat(snapshot)
		return err
	})
	n.lose(api, away)
	agent.Stop(await.Answer)
	n.start()
	n.usable()
	must(t, n.serves(old, addrs))
	must(t, n.startsAtOnce(list, fresh))
	must(t, errors.Join(n.del(list, old), n.del(list, fresh)))
	n.wantState(before)
}

// serveAPI has the agent read the cluster from an API server, with more sections of its configuration.
func (n *node) serveAPI(sections string) *apitest.Server {
	n.Helper()
	api := apitest.New(n)
	for text := range strings.SplitSeq(nodes+policies, "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(strings.TrimPrefix(text, "---\n")), nil, nil)
		must(n, err)
		api.Put(o.(metav1.Object))
	}
	// It takes the API server for lost after a second without a word.
	n.configure(fmt.Sprintf("kubernetes: {kubeconfig: %s, silence: 1s}\n%s", api.Kubeconfig(n), sections))
	return api
}

// lose has an API server misbehave, and waits until the agent knows.
func (n *node) lose(api *apitest.Server, f apitest.Fault) {
	n.Helper()
	before := n.logged("kubernetes api")
	api.Misbehave(f)
	api.Cut()
	await.NoError(n, func() error {
		if n.logged("kubernetes api") == before {
			return errors.New("the agent has not noticed that the API server is away")
		}
		return nil
	})
}

// awaitLog calls cause, and waits until the agent's log has a text once more than before.
func (n *node) awaitLog(text string, cause func()) {
	n.Helper()
	before := n.logged(text)
	cause()
	await.NoError(n, func() error {
		if n.logged(text) == before {
			return fmt.Errorf("the agent's log has no other line with %q", text)
		}
		return nil
	})
}

// logged is how often the agent's log has a text.
func (n *node) logged(text string) int {
	n.Helper()
	log, err := os.ReadFile(n.path("agent.log"))
	must(n, err)
	return strings.Count(string(log), text)
}
