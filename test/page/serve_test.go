package page

import (
	"bufio"
	"context"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"portolan.dev/portolan/test/child"
)

// TestServe verifies that the page of a DNS server shows queries that fail, at once and in sum.
func TestServe(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(portolan(t), "serve", "--manifests", "../../examples/trouble", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	ended, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it fails if the process has ended
		<-ended
	})
	dns, admin := addresses(t, bufio.NewScanner(log))

	p := open(t, "http://"+admin, "#/tail")
	p.until(`document.querySelector("main").innerText.includes("Connected. No events yet")`)
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", dns)
	}}
	const name = "serch.shop.svc.cluster.local."
	if found, err := resolver.LookupHost(t.Context(), name); err == nil {
		t.Fatalf("LookupHost(%q) = %v, want an error", name, found)
	}
	p.until(`document.querySelector("tbody tr")?.innerText.includes("serch.shop.svc.cluster.local.")`)
	p.inOrder("query", "no-service", "The Namespace has no such Service.", "127.0.0.1", name)
	p.visit("")
	p.until(`document.querySelector(".plot canvas")`)
	p.inOrder("Nothing is known to be wrong", "portolan serve", "Events per", "Top failures", name, "no-service",
		"In the cluster", "Parts of this process", "dns", "ready", "NetworkPolicies are not read here")
}

// addresses returns the addresses that a server logs.
func addresses(tb testing.TB, log *bufio.Scanner) (dns, admin string) {
	tb.Helper()
	pattern := regexp.MustCompile(`msg=serving listen=\[([^ \]]+).* admin=(\S+)`)
	var all []string
	for log.Scan() {
		all = append(all, log.Text())
		if m := pattern.FindStringSubmatch(log.Text()); m != nil {
			go func() {
				for log.Scan() { // so that the server can write
				}
			}()
			return m[1], m[2]
		}
	}
	tb.Fatalf("no addresses in the log:\n%s", strings.Join(all, "\n"))
	return "", ""
}
