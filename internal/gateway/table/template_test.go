package table

import "testing"

func TestTemplate(t *testing.T) {
	t.Parallel()
	of := &TemplateValues{Host: "shop.example", HTTPHost: "shop.example:8443", Scheme: "https", URI: "/a?b=c&d=e f"}
	for claim, test := range map[string]struct{ text, want, err string }{
		"text stays":             {text: "https://auth.example/check", want: "https://auth.example/check"},
		"host and scheme":        {text: "$scheme://$host/check", want: "https://shop.example/check"},
		"host with its port":     {text: "${scheme}://${best_http_host}", want: "https://shop.example:8443"},
		"URI as it is":           {text: "/x$request_uri", want: "/x/a?b=c&d=e f"},
		"URI as a parameter":     {text: "?rd=$escaped_request_uri", want: "?rd=%2Fa%3Fb%3Dc%26d%3De+f"},
		"a variable in braces":   {text: "${host}name", want: "shop.examplename"},
		"unknown variable":       {text: "$cookie_x", err: "variable $cookie_x is not known"},
		"a dollar alone":         {text: "a$", err: "variable $ is not known"},
		"a brace without an end": {text: "${host", err: "${host has no closing brace"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			made, err := ParseTemplate(test.text)
			if err != nil && err.Error() != test.err || err == nil && test.err != "" {
				t.Fatalf("ParseTemplate(%q): %v, want %q", test.text, err, test.err)
			}
			if err != nil {
				return
			}
			if got := made.Expand(of); got != test.want {
				t.Errorf("ParseTemplate(%q).Expand(%+v) = %q, want %q", test.text, of, got, test.want)
			}
			again, err := ParseTemplate(made.String())
			if err != nil || again.Expand(of) != test.want {
				t.Errorf("ParseTemplate(%q): %v, %v", made.String(), again, err)
			}
		})
	}
}

func TestPersistenceKey(t *testing.T) {
	t.Parallel()
	if PersistenceKey("a", "bc") == PersistenceKey("ab", "c") {
		t.Error(`PersistenceKey("a", "bc") == PersistenceKey("ab", "c")`)
	}
}
