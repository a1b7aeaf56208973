package config_test

import (
	"testing"

	"portolan.dev/portolan/internal/config"
)

// TestText checks that the text has the values that differ from the defaults, with
// their comments.
func TestText(t *testing.T) {
	comments := map[string]string{"dns.ttl": "here", "dns.forward.routes[1]": "there", "dns.listen": "where", "dns.cache.stale": "unseen"}
	for claim, text := range map[string]string{
		"the defaults": "# the defaults\n",
		"all kinds of values": `dns:
  tcp:
    idle: 1m0s
`,
		"lists": `dns:
  listen: ['127.0.0.1:53', '[::1]:53'] # where
  ttl: 7 # here
  forward:
    routes:
      - upstreams: [10.0.0.2]
      # there
      - suffix: corp.example
        resolvConf: /etc/resolv.conf
        timeout: 2s
  cache:
    size: 1Mi
  access:
    - action: refuse
      names: [corp.example]
`,
		"nothing, where there is something by default": `admin:
  listen: ""
dns:
  nameServer:
    service: a/b
  hosts:
    ttl: 0
`,
	} {
		c, err := config.Read(write(t, text))
		if err != nil {
			t.Fatalf("%s: %v", claim, err)
		}
		if got, err := c.Text(comments); err != nil || string(got) != text {
			t.Errorf("%s: Text = %q, %v, want %q", claim, got, err, text)
		}
	}
}
