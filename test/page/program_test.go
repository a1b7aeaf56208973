package page

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/program"
)

var other = flag.String("program", "", "test this `FILE` instead of a build of the working tree")

// built returns the program.
var built = sync.OnceValues(func() (string, error) {
	if *other != "" {
		return *other, nil
	}
	return program.Build(context.Background(), program.Options{})
})

// portolan returns the path of the program.
func portolan(tb testing.TB) string {
	tb.Helper()
	file, err := built()
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

// start starts portolan page on manifests, with further flags, and returns its address.
func start(tb testing.TB, manifests string, flags ...string) string {
	tb.Helper()
	args := append([]string{"page", "--manifests", manifests, "--listen", "127.0.0.1:0"}, flags...)
	cmd := exec.Command(portolan(tb), args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	ended, err := child.Start(cmd)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it fails if the process has ended
		<-ended
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatalf("%s: no address: %v", cmd, err)
	}
	return strings.TrimSuffix(strings.TrimSpace(line), "/")
}

// explanation is what the command explain prints as JSON.
type explanation struct {
	Outcome string
	State   string
	Layers  []struct {
		State, Says string
		Diagnoses   []struct{ Why, Cure string }
	}
}

// explain returns what the command explain prints.
func explain(tb testing.TB, manifests string, args ...string) (e explanation, text string) {
	tb.Helper()
	run := func(more ...string) []byte {
		all := append(append([]string{"explain"}, args...), append(more, "--manifests", manifests)...)
		out, err := exec.Command(portolan(tb), all...).Output() // the status says which layer is broken
		if len(out) == 0 {
			tb.Fatalf("portolan %s: %v", strings.Join(all, " "), err)
		}
		return out
	}
	if err := json.Unmarshal(run("-o", "json"), &e); err != nil {
		tb.Fatal(err)
	}
	return e, string(run())
}

// TestExplanations verifies that the page explains as the command does: the same verdict, the same first cause and cure,
// the same layers, and the same text.
func TestExplanations(t *testing.T) {
	t.Parallel()
	const trouble, gateway = "../../examples/trouble", "../../examples/gateway-trouble"
	for manifests, questions := range map[string][][2]string{ // targets and clients
		trouble: {
			{"web", "shop/client"}, {"postgres", "shop/client"}, {"cart", "shop/client"}, {"search", "shop/client"},
			{"mail:26", "shop/client"}, {"gifts:80", "shop/client"}, {"bank", "shop/client"}, {"web", "shop/ledger"},
			{"web.shop", "shop/report"}, {"nowhere", "shop/client"},
		},
		gateway: {
			{"http://serch.shop/", "shop/search-0"}, {"http://shop.example.com/cart", ""}, {"http://checkout.shop.example/pay", ""},
			{"http://checkout.shop.example/search", ""}, {"http://blog.shop.example/", ""}, {"http://www.shop.example/cart", ""},
			{"http://www.shop.example/pages", ""},
		},
	} {
		p := open(t, start(t, manifests), "#/explain")
		p.expected = []string{"400 (Bad Request)", "404 (Not Found)"}
		for _, q := range questions {
			args := []string{q[0]}
			if q[1] != "" {
				args = append(args, "--from", q[1])
			}
			want, text := explain(t, manifests, args...)
			p.visit(fmt.Sprintf("#/explain?target=%s&from=%s", jsEscape(q[0]), jsEscape(q[1])))
			first, cure := "", ""
			for _, layer := range want.Layers {
				if layer.State == "broken" && len(layer.Diagnoses) > 0 && first == "" {
					first, cure = layer.Diagnoses[0].Why, layer.Diagnoses[0].Cure
				}
			}
			if lead := p.text(".lead"); !strings.HasSuffix(lead, ": "+want.Outcome) {
				t.Errorf("%q: the page says %q, and the command %q", args, lead, want.Outcome)
			}
			if got := p.text(".problems .what"); first != "" && got != first {
				t.Errorf("%q: the page says first %q, and the command %q", args, got, first)
			}
			if got := p.text(".problems .cure"); first != "" && got != "Cure: "+cure {
				t.Errorf("%q: the page says %q, and the command the cure %q", args, got, cure)
			}
			if got := p.number(`document.querySelectorAll(".way > li").length`); got != len(want.Layers) {
				t.Errorf("%q: the page has %d layers, and the command %d", args, got, len(want.Layers))
			}
			p.eval(`document.querySelector("details:has(pre)").open = true`)
			if got := p.text("pre"); got != strings.TrimRight(text, "\n") && got != text {
				t.Errorf("%q: the page has the text\n%s\nand the command\n%s", args, got, text)
			}
		}
	}
}

// TestProgram verifies that what is wrong is seen in the views of a real server, without knowing what to look for.
func TestProgram(t *testing.T) {
	t.Parallel()
	base := start(t, "../../examples/trouble")
	p := open(t, base, "")
	p.expected = []string{"404 (Not Found)"} // it has no events
	p.wants("In the cluster", "Services", "Sources", "version")
	p.visit("#/service/shop/search")
	p.inOrder("Service shop/search", "What is wrong", "it selects no Pod: deployment shop/search has app=search, and the selector has serach",
		"Cure: set spec.selector to app=search, or the label to serach", "Explain a connection to it",
		"Policies for incoming connections", "It has no running Pods whose policies could be shown.")
	p.visit("#/service/shop/cart")
	p.inOrder("What is wrong", "it has 1 endpoint, which is not ready", "Cure: find out why the Pod is not ready")
	p.visit("#/pod/shop/client")
	p.inOrder("Pod shop/client", "nameserver 10.96.0.10", "Services that select it")
	p.run(slash)
	p.press("10.96.12.34")
	p.until(`document.querySelector("#search-list li")?.innerText.includes("shop/web")`)
	p.press("\r")
	p.until(`location.hash.startsWith("#/search")`)

	p = open(t, start(t, "../../examples/gateway-trouble"), "#/gateways")
	p.inOrder("Gateways", "Gateway infra/partners", "served by another controller", "Gateway infra/public", "192.0.2.10", "*.shop.example", "Accepted True")
	p.visit("#/service/shop/web")
	p.inOrder("What is wrong", "HTTPRoute shop/api", "no listener has a hostname in common with the route")

	p.run(slash)
	p.press("api")
	p.until(`document.querySelector("#search-list li")?.innerText.includes("shop/api")`)
	p.eval(`[...document.querySelectorAll("#search-list li")].find((e) => e.innerText.includes("HTTPRoute")).click()`)
	p.until(`location.hash.startsWith("#/gateways?route=shop")`)
	p.settled()
	p.inOrder("Route shop/api", "HTTPRoute", "broken", "no listener has a hostname in common", "What is wrong", "Gateway infra/public", "Routes")
	p.visit("#/explain")
	p.eval(`document.getElementById("field-from").focus()`)
	p.press("sea")
	p.until(`[...document.querySelectorAll("#field-from-list option")].some((o) => o.value === "shop/search-0")`)
	if got := p.eval(`[...document.querySelectorAll("#field-from-list option")].map((o) => o.value).slice(0, 2).join()`); got != "node,outside" {
		t.Errorf("the form offers %v first, want node,outside", got)
	}
}

// TestNodesOfManifests verifies that nodes whose manifests have no conditions are not called broken, and that the page of
// manifests says where events are.
func TestNodesOfManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
	if err := os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, start(t, dir), "")
	p.expected = []string{"404 (Not Found)"} // it has no events
	p.inOrder("Nothing is known to be wrong", "Events over time", "This process records no events", "Top failures",
		"This process records no events", "Read, and without objects:", "Nodes", "n1", "not known")
}

// TestManyServices verifies that the page is of use with 10,000 Services, and prints how long its requests take.
func TestManyServices(t *testing.T) {
	t.Parallel()
	const n = 10_000
	var manifests strings.Builder
	manifests.WriteString("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	for i := range n {
		fmt.Fprintf(&manifests, "---\napiVersion: v1\nkind: Service\nmetadata: {name: web-%d, namespace: shop}\n"+
			"spec: {clusterIP: 10.%d.%d.%d, ports: [{name: http, port: 80}]}\n", i, 96+i>>16, i>>8&255, i&255)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "services.yaml"), []byte(manifests.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	base := start(t, dir)
	p := open(t, base, "#/search?q=web")
	p.expected = []string{"404 (Not Found)"}
	await.NoError(t, func() error {
		p.visit("")
		if got := p.text("main"); !strings.Contains(got, "10,000") {
			return fmt.Errorf("the page does not have 10,000 Services:\n%s", got)
		}
		return nil
	})
	for _, view := range []string{"", "#/search?q=web", "#/search?q=10.96.7.", "#/service/shop/web-7777", "#/explain?target=10.96.0.7:80&from=outside"} {
		begin := time.Now()
		p.visit(view)
		elements := p.number(`document.querySelectorAll("*").length`)
		t.Logf("%q: %d elements, %d ms with the navigation; requests to the server: %s", view, elements, time.Since(begin).Milliseconds(),
			p.eval(`performance.getEntriesByType("resource").filter((e) => e.name.includes("/api/")).map((e) => Math.round(e.duration) + " ms").join(", ")`))
		if elements > 3000 {
			t.Errorf("%q has %d elements, want at most 3000", view, elements)
		}
	}
	first := open(t, base, "#/explain", uncached, watched(".counts dd"))
	first.expected = p.expected
	firstView(first)
}
