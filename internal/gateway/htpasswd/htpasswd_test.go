package htpasswd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestMatches has hashes made by openssl passwd and by crypt(3).
func TestMatches(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ hash, password string }{
		"apr1":                       {"$apr1$xyzSalt1$2lFhZVF6sQ1fgHHbXlFaj0", "secret"},
		"apr1 of an empty password":  {"$apr1$xyzSalt1$DVzQCH2tKVMVtJ9jljv/80", ""},
		"apr1 of one octet":          {"$apr1$xyzSalt1$H0LHdEO8Ck0.aYJ/89AuE/", "a"},
		"apr1 of 17 octets":          {"$apr1$xyzSalt1$IEAwkn7cC1o4z4OdP69wV0", "0123456789abcdefg"},
		"apr1 of more, in UTF-8":     {"$apr1$xyzSalt1$qNurtb18aIpKLzcZWChET/", "pässwörd-longer-than-sixteen-octets-000000000000000000000"},
		"MD5-crypt":                  {"$1$xyzSalt1$DJIxjLQl.THGvUgdkzHi0/", "secret"},
		"MD5-crypt of more":          {"$1$xyzSalt1$fNvcqs3uLAesHzGhRc.GB/", "pässwörd-longer-than-sixteen-octets-000000000000000000000"},
		"SHA-1":                      {"{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "secret"},
		"SHA-1 with a salt":          {"{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0", "secret"},
		"bcrypt as htpasswd -B does": {"$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", "secret"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			if err := Check(test.hash); err != nil {
				t.Errorf("Check(%q): %v", test.hash, err)
			}
			if !Matches(test.hash, test.password) {
				t.Errorf("Matches(%q, %q) = false", test.hash, test.password)
			}
			if Matches(test.hash, test.password+"x") || Matches(test.hash, strings.Repeat("x", MaxPassword+1)) {
				t.Errorf("Matches(%q) has another password", test.hash)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		text     string
		users    string
		problems []string
	}{
		"an empty file":         {text: "", users: "[]"},
		"comments, empty lines": {text: "# users\n\n  \r\nann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\r\n", users: "[ann]"},
		"a line without a hash, which may be a password": {text: "ann\nbob:", users: "[]", problems: []string{
			`line 1: no colon after the user`, `line 2: user "bob": no hash of a password`,
		}},
		"no user": {text: ":{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", users: "[]", problems: []string{"line 1: no user"}},
		"hashes that are not known": {
			text: "a:secret\nb:{PLAIN}secret\nc:$6$salt$sum\nd:{SHA}x\ne:$apr1$salt$short\nf:$2y$xx\ng:ab1234567890.", users: "[]",
			problems: slices.Collect(func(yield func(string) bool) {
				for i, name := range strings.Split("abcdefg", "") {
					if !yield(fmt.Sprintf("line %d: user %q: %v", i+1, name, errUnknown)) {
						return
					}
				}
			}),
		},
		"bcrypt that takes seconds": {
			text: "a:$2y$13$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", users: "[]",
			problems: []string{`line 1: user "a": the cost of bcrypt is higher than 12`},
		},
		"a user twice": {
			text:  "a:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\na:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
			users: "[a]", problems: []string{`line 2: user "a" is in a line before`},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			users, problems := Parse([]byte(test.text))
			var texts []string
			for _, p := range problems {
				texts = append(texts, p.Error())
			}
			if got := fmt.Sprint(slices.Sorted(maps.Keys(users))); got != test.users || !slices.Equal(texts, test.problems) {
				t.Errorf("Parse(%q) = %s, %q, want %s, %q", test.text, got, texts, test.users, test.problems)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("ann:$apr1$xyzSalt1$2lFhZVF6sQ1fgHHbXlFaj0\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="))
	f.Fuzz(func(_ *testing.T, text []byte) {
		users, _ := Parse(text)
		for _, hash := range users {
			if !isBcrypt(hash) {
				Matches(hash, "secret")
			}
		}
	})
}
