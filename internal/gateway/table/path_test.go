package table_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/gateway/table"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ path, want string }{ // want is empty for ErrPath
		"normal":                      {"/a/b", "/a/b"},
		"root":                        {"/", "/"},
		"unreserved is decoded":       {"/%61dmin%2D%2e%5F%7E", "/admin-._~"},
		"others are in upper case":    {"/a%2fb%20%c3", "/a%2Fb%20%C3"},
		"a dot segment":               {"/a/./b", "/a/b"},
		"two dots":                    {"/a/../b", "/b"},
		"more than there is":          {"/../../b", "/b"},
		"encoded dots":                {"/a/%2e%2E/b", "/b"},
		"dots at the end":             {"/a/b/..", "/a/"},
		"a dot at the end":            {"/a/b/.", "/a/b/"},
		"only dots":                   {"/..", "/"},
		"a name with dots":            {"/a/..b/.c/...", "/a/..b/.c/..."},
		"slashes stay":                {"//a///b/", "//a///b/"},
		"empty elements are elements": {"/a//../b", "/a/b"},
		"no slash":                    {"a", ""},
		"empty":                       {"", ""},
		"a percent at the end":        {"/a%", ""},
		"one digit":                   {"/a%2", ""},
		"no digits":                   {"/a%zz", ""},
		"NUL":                         {"/a%00", ""},
		"not decoded twice":           {"/%2561", "/%2561"},
	}
	for claim, test := range tests {
		got, err := table.Normalize(test.path)
		if got != test.want || (err != nil) != (test.want == "") || err != nil && !errors.Is(err, table.ErrPath) {
			t.Errorf("%s: Normalize(%q) = %q, %v; want %q", claim, test.path, got, err, test.want)
		}
	}
}

func TestDecoded(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ path, want string }{
		"normal":                       {"/a/b", "/a/b"},
		"encoded":                      {"/a%20b%C3%A9%3B", "/a bé;"},
		"an encoded slash":             {"/a%2Fb", "/a/b"},
		"several slashes":              {"///a//b//", "/a/b/"},
		"encoded slashes and slashes":  {"/%2F/%2Fa", "/a"},
		"dots between encoded slashes": {"/a%2F..%2Fb", "/b"},
		"dots after an empty element":  {"/a//..//b", "/b"},
		"more dots than there is":      {"/..%2F..%2Fa", "/a"},
		"not decoded twice":            {"/%252F", "/%2F"},
	} {
		if got := table.Decoded(test.path); got != test.want {
			t.Errorf("%s: Decoded(%q) = %q, want %q", claim, test.path, got, test.want)
		}
	}
}

// FuzzNormalize: a normal path stays, has no dot segments, and is the same resource.
func FuzzNormalize(f *testing.F) {
	for _, seed := range []string{"/a/../b", "/%2e%2e/%61//x/.", "/%", "/a%2Fb/..%2f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := table.Normalize(path)
		if err != nil {
			return
		}
		if again, err := table.Normalize(got); again != got || err != nil {
			t.Errorf("Normalize(%q) = %q, of which it makes %q, %v", path, got, again, err)
		}
		if !strings.HasPrefix(got, "/") || strings.Contains(got+"/", "/./") || strings.Contains(got+"/", "/../") {
			t.Errorf("Normalize(%q) = %q", path, got)
		}
		if strings.Contains(path, ".") || strings.Contains(strings.ToLower(path), "%2e") {
			return
		}
		before, errBefore := url.PathUnescape(path)
		if after, err := url.PathUnescape(got); errBefore != nil || err != nil || before != after {
			t.Errorf("Normalize(%q) = %q, another resource", path, got)
		}
	})
}
