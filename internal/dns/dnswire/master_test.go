package dnswire_test

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// TestMasterTargets checks that names to look up are in lower case, octet by octet.
func TestMasterTargets(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct{ record, want string }{
		"CNAME":                     {"a CNAME Web.Example.", "\x03web\x07example\x00"},
		"NS":                        {"a NS Web.Example.", "\x03web\x07example\x00"},
		"SRV":                       {"a SRV 65 66 67 Web.Example.", "\x00\x41\x00\x42\x00\x43\x03web\x07example\x00"},
		"a letter as a number":      {`a CNAME \065bc.example.`, "\x03abc\x07example\x00"},
		"an octet that is no ASCII": {`a CNAME \255\195\132.example.`, "\x03\xff\xc3\x84\x07example\x00"},
		"text is left alone":        {"a TXT Web", "\x03Web"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var got string
			err := dnswire.ReadMaster(strings.NewReader(tt.record+"\n"), dnsname.MustParse("corp.example"), 5,
				func(r *dnswire.MasterRecord) error { got = string(r.RData); return nil })
			if err != nil || got != tt.want {
				t.Errorf("ReadMaster(%q): RDATA %q, %v, want %q", tt.record, got, err, tt.want)
			}
		})
	}
}
