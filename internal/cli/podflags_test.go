package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestWebhookDNS checks that a Pod with one search domain uses the name servers that
// the webhook writes, if they are configured and no flag sets others, and that a note
// says that labels and annotations are ignored.
func TestWebhookDNS(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("portolan.yaml", "webhook: {clusterDNS: [10.96.0.53], nodeDNS: [169.254.20.10]}\n")
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {dnsPolicy: "
	searched := write("searched.yaml", pod+"ClusterFirstWithAutopath}\n")
	usual := write("usual.yaml", pod+"ClusterFirst}\n")
	const first, note = "nameserver 169.254.20.10\nnameserver 10.96.0.53\n", "portolan.dev/dns-policy"
	for name, test := range map[string]struct {
		command    *cobra.Command
		args       []string
		want, lack string // in the output
	}{
		"resolvconf":           {newResolvConf(), []string{"-f", searched}, first + "search search.shop.", note},
		"explain":              {newExplain(), []string{"web.shop", "-f", searched}, first, note},
		"a flag counts more":   {newResolvConf(), []string{"-f", searched, "--cluster-dns", "192.0.2.1"}, "nameserver 192.0.2.1\nsearch", "169.254"},
		"ClusterFirst":         {newResolvConf(), []string{"-f", usual}, note, "169.254"},
		"explain ClusterFirst": {newExplain(), []string{"web.shop", "-f", usual}, note, "169.254"},
	} {
		var out bytes.Buffer
		test.command.SetArgs(append(test.args, "--config", config))
		test.command.SetOut(&out)
		test.command.SetErr(&out)
		test.command.SilenceUsage = true
		_ = test.command.Execute() // the name need not be found, nor the policy accepted
		lines := strings.ReplaceAll(out.String(), "\n  ", "\n")
		if !strings.Contains(lines, test.want) || strings.Contains(lines, test.lack) {
			t.Errorf("%s: want %q and not %q in\n%s", name, test.want, test.lack, &out)
		}
	}
}
