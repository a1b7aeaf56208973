package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestClean checks what is removed, and what stays.
func TestClean(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ text, want string }{
		"a sentence":                         {"Secret shop/tls does not exist", "Secret shop/tls does not exist"},
		"a name of a file":                   {"tokenFile: /run/token", "tokenFile: /run/token"},
		"a name of a Secret":                 {`"secretName":"tls"`, `"secretName":"tls"`},
		"a digest of an image":               {"portolan@sha256:" + strings.Repeat("ab", 32), "portolan@sha256:" + strings.Repeat("ab", 32)},
		"a metric":                           {"portolan_cookies_total 5", "portolan_cookies_total 5"},
		"a question":                         {"does it work? yes", "does it work? yes"},
		"a setting in YAML":                  {"password: hunter2", "password: (removed)"},
		"a setting in JSON":                  {`{"api_key":"a b\"c","x":1}`, `{"api_key":(removed),"x":1}`},
		"a flag":                             {"--token=abc --zone=x", "--token=(removed) --zone=x"},
		"a header field":                     {"Authorization: Basic dXNlcjpwYXNz\nnext", "Authorization: (removed)\nnext"},
		"a header field in other words":      {`sent "authorization" = "x y z" now`, `sent "authorization" = (removed) now`},
		"several cookies":                    {"Set-Cookie: a=b; c=d", "Set-Cookie: (removed)"},
		"a bearer":                           {"got Bearer abcdef.ghi", "got Bearer (removed)"},
		"a query string":                     {"GET /cart?id=1&x=2 200", "GET /cart?(removed) 200"},
		"a query string of a word":           {"got cart?token=abc 200", "got cart?(removed) 200"},
		"a query string of a URL":            {"https://a.example?opaque end", "https://a.example?(removed) end"},
		"a query string after a host":        {"a.example/x?opaque end", "a.example/x?(removed) end"},
		"a query string in quotes":           {`url="/x?:opaque"`, `url="/x?(removed)"`},
		"a question about a name":            {"Service a/b does not exist (did you mean c?): 500", "Service a/b does not exist (did you mean c?): 500"},
		"a question about an object":         {"(did you mean a/c?): its share", "(did you mean a/c?): its share"},
		"a question about a path":            {"(did you mean /cart?): its share", "(did you mean /cart?): its share"},
		"a line of a file":                   {"/tmp/secret.yaml:12: error: x", "/tmp/secret.yaml:12: error: x"},
		"a line of a program":                {"at token.go:12 +0x1d", "at token.go:12 +0x1d"},
		"a number behind a setting":          {"db.password:12", "db.password:(removed)"},
		"a setting that names a file":        {"secret.yaml: hunter2", "secret.yaml: (removed)"},
		"a message about an object":          {"error: service a/token: spec.x: no", "error: service a/token: spec.x: no"},
		"a setting behind an object":         {"service a/token: password: hunter2", "service a/token: password: (removed)"},
		"an annotation":                      {"example.com/token: hunter2", "example.com/token: (removed)"},
		"a setting of an object":             {"secret a/token=hunter2", "secret a/token=(removed)"},
		"a setting behind a spared one":      {`{"secretName":"a","password":"b"}`, `{"secretName":"a","password":(removed)}`},
		"a user in a URL":                    {"https://u:p@example.com/x", "https://(removed)@example.com/x"},
		"a hash of htpasswd":                 {"admin:$apr1$salt$hash", "admin:(removed)"},
		"a hash of LDAP":                     {"admin:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "admin:(removed)"},
		"a key of WireGuard":                 {"key NmFzYWZlY3JldGtleXRoYXRpczMyb2N0ZXRzYWE1ODE= end", "key (removed) end"},
		"a private key that is cut":          {"a\n-----BEGIN PRIVATE KEY-----\nMIIE", "a\n(removed)"},
		"a private key in a line":            {`"-----BEGIN RSA PRIVATE KEY-----\nM\n-----END RSA PRIVATE KEY-----\n"`, `"(removed)\n"`},
		"a known secret":                     {"it is hush-hush", "it is (removed)"},
		"a known secret in base64":           {"it is aHVzaC1odXNo", "it is (removed)"},
		"a known secret in a URL":            {"it is a%2Bb%2Fc%2Fd", "it is (removed)"},
		"a password of a file of users":      {"the password correct-horse", "the password (removed)"},
		"a line of a known secret":           {"second line", "(removed)"},
		"a part of a word that is too short": {"abc", "abc"},
	} {
		c := NewCleaner()
		for _, secret := range []string{"hush-hush", "a+b/c/d", "root:correct-horse", "first line\nsecond line", "ab"} {
			c.Hide(secret)
		}
		if got := c.Clean(test.text); got != test.want {
			t.Errorf("%s: Clean(%q) = %q, want %q", claim, test.text, got, test.want)
		}
	}
}

// TestHide checks that what is kept of a secret is proportional to its length, whatever it has: a fingerprint has a colon
// for each octet, and JSON one for each key.
func TestHide(t *testing.T) {
	t.Parallel()
	const colons, most = 1000, 16
	c := NewCleaner()
	secret := strings.Repeat("ab:", colons) + "hush-hush"
	if c.Hide(secret); len(c.secrets) > most {
		t.Errorf("Hide with %d colons keeps %d texts, want at most %d", colons, len(c.secrets), most)
	}
	if got := c.Clean("it is " + secret); got != "it is (removed)" {
		t.Errorf("Clean of a secret with %d colons = %.60q", colons, got)
	}
}

// TestMask checks that equal addresses and names become equal pseudonyms.
func TestMask(t *testing.T) {
	t.Parallel()
	c := NewCleaner()
	c.MaskAddresses()
	c.MaskNames()
	c.MaskDomain("corp.example")
	c.MaskPath("/home/rm/acme.yaml")
	c.Keep("dns.forward")
	c.MaskName("shop")
	c.MaskName("web-0")
	c.MaskName("kube-system")
	shop, web, addr := c.pseudonym("name", "shop"), c.pseudonym("name", "web-0"), c.pseudonym("address", "10.1.2.3")
	v6 := c.pseudonym("address", "fd00::1")
	name := func(label string) string { return c.pseudonym("name", label) }
	for text, want := range map[string]string{
		"shop/web-0 in workshop":            "" + shop + "/" + web + " in workshop",
		"web-0.shop.svc.cluster.local.":     web + "." + shop + ".svc.cluster.local.",
		"kube-system 127.0.0.1:53 [::1]:53": "kube-system 127.0.0.1:53 [::1]:53",
		"10.1.2.3:53 and ::ffff:10.1.2.3":   addr + ":53 and " + addr,
		"[fd00::1]:80 fd00:0:0::1":          "[" + v6 + "]:80 " + v6,
		"at 12:34:56 version 1.2.3":         "at 12:34:56 version 1.2.3",
		"10-1-2-3.shop.pod.cluster.local.":  addr + "." + shop + ".pod.cluster.local.",
		// Names that the report was not told of.
		`"nobody.shop.svc.cluster.local."`: `"` + name("nobody") + "." + shop + `.svc.cluster.local."`,
		`_http._tcp.web.shop.svc`:          "_" + name("http") + "._tcp." + name("web") + "." + shop + ".svc",
		`name=DB.Corp.Example. type=A`:     "name=" + name("db") + "." + name("corp") + "." + name("example") + ". type=A",
		`"key":"www.acme.com."`:            `"key":"` + name("www") + "." + name("acme") + "." + name("com") + `."`,
		`name=intranet. type=A`:            "name=" + name("intranet") + ". type=A",
		`corp is in corp`:                  name("corp") + " is in " + name("corp"),
		"/home/rm/acme.yaml:12: x":         c.pseudonym("path", "/home/rm/acme.yaml") + ".yaml:12: x",
		// What has dots and is no name.
		"spec.rules[0].http.paths[0].backend: see config.yaml.": "spec.rules[0].http.paths[0].backend: see config.yaml.",
		"dns.forward and app.kubernetes.io/name, 0.25s 1.2e+09": "dns.forward and app.kubernetes.io/name, 0.25s 1.2e+09",
		"main.run(0x1), http.HandlerFunc, runtime.GOMAXPROCS":   "main.run(0x1), http.HandlerFunc, runtime.GOMAXPROCS",
	} {
		if got := c.Clean(text); got != want {
			t.Errorf("Clean(%q) = %q, want %q", text, got, want)
		}
	}
	if other := NewCleaner(); other.pseudonym("name", "shop") == shop {
		t.Error("pseudonyms of two reports are equal")
	}
}

// TestMaskAnything checks that texts of a process that is not to be trusted can be masked: many, and such as are no
// UTF-8.
func TestMaskAnything(t *testing.T) {
	t.Parallel()
	c := NewCleaner()
	c.MaskNames()
	const bad = "/\xff/(x.yaml"
	c.MaskPath(bad)
	for i := range 200_000 {
		c.MaskPath(fmt.Sprintf("/srv/%d/%s", i, strings.Repeat("x", 100)))
	}
	if got, want := c.Clean(bad+": x"), c.pseudonym("path", bad)+".yaml: x"; got != want {
		t.Errorf("Clean(%q) = %q, want %q", bad, got, want)
	}
}

// TestArchive checks the bounds of an archive and its index.
func TestArchive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := New(Config{
			Out: &out, Directory: "r", Time: time.Now(), Clean: NewCleaner(), FileSize: 100, Size: 150, Patience: time.Second,
		})
		words := func(text string, err error) func(context.Context, io.Writer) error {
			return func(_ context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, text)
				return err
			}
		}
		for _, f := range []File{
			{Name: "small", About: "a small file", Collect: words("small", nil)},
			{Name: "broken", About: "a part of a file", Collect: words("part", errors.New("it\nended"))},
			{Name: "absent", About: "no file", Collect: words("", errors.New("refused"))},
			{Name: "empty", About: "no file", Collect: words("", nil)},
			{Name: "slow", About: "a slow file", Collect: func(ctx context.Context, _ io.Writer) error { <-ctx.Done(); return ctx.Err() }},
			{Name: "large", About: "a large file", Collect: words(strings.Repeat("x", 1<<20), nil)},
			{Name: "rest", About: "what is left", Collect: words(strings.Repeat("y", 90), nil)},
			{Name: "more", About: "too much", Collect: words("more", nil)},
		} {
			if err := a.Add(t.Context(), f); err != nil {
				t.Fatalf("Add(%s) = %v", f.Name, err)
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		got := read(t, &out)
		for name, size := range map[string]int{"r/small": 6, "r/broken": 5, "r/large": 100, "r/rest": 39} {
			if len(got[name]) != size {
				t.Errorf("%s has %d octets, want %d", name, len(got[name]), size)
			}
		}
		for name, text := range got {
			if !strings.HasSuffix(text, "\n") {
				t.Errorf("%s ends without a line break: %q", name, text)
			}
		}
		for _, line := range []string{
			"  small: a small file\n", "  broken: a part of a file (incomplete: it ended)\n", "  absent: refused\n",
			"  empty: it is empty\n", "  slow: context deadline exceeded\n", "  large: a large file (cut after 100 octets)\n",
			"  more: the archive has its largest size\n",
		} {
			if !strings.Contains(got["r/INDEX"], line) {
				t.Errorf("INDEX lacks %q:\n%s", line, got["r/INDEX"])
			}
		}
		if n := len(a.Missing()); n != 4 {
			t.Errorf("Missing() = %q, want 4", a.Missing())
		}
	})
}

// TestTimeOfFiles checks that files are not newer than the report: tar rounds a time to the nearest second.
func TestTimeOfFiles(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Date(2026, 11, 29, 0, 0, 0, 900_000_000, time.UTC)
	if err := New(Config{Out: &out, Directory: "r", Time: now, Clean: NewCleaner()}).Close(); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	h, err := tar.NewReader(z).Next()
	if err != nil {
		t.Fatal(err)
	}
	if want := now.Truncate(time.Second); !h.ModTime.Equal(want) {
		t.Errorf("%s has the time %s, want %s", h.Name, h.ModTime, want)
	}
}

// TestNamesOfFiles checks that names of files are cleaned, and that the index has the same ones, also if a
// name is learnt after the file was written.
func TestNamesOfFiles(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := NewCleaner()
	c.MaskNames()
	c.MaskAddresses()
	a := New(Config{
		Out: &out, Directory: "r", Clean: c, FileSize: 100, Size: 1000, Patience: time.Second,
	})
	for _, name := range []string{"at-10.1.2.3-9153/x.txt", "www.acme.com/x.txt", "acmelate/x.txt"} {
		err := a.Add(t.Context(), File{
			Name: name, About: "a file of " + name,
			Collect: func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "text"); return err },
		})
		if err != nil {
			t.Fatalf("Add(%s) = %v", name, err)
		}
	}
	c.MaskName("acmelate")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files := read(t, &out)
	index := files["r/INDEX"]
	delete(files, "r/INDEX")
	for name := range files {
		bare := strings.TrimPrefix(name, "r/")
		if !strings.Contains(index, "  "+bare+": ") {
			t.Errorf("INDEX lacks %q:\n%s", bare, index)
		}
		for _, masked := range []string{"10.1.2.3", "acme.com", "www"} {
			if strings.Contains(name, masked) {
				t.Errorf("a file is called %q, which has %q", name, masked)
			}
		}
	}
	if len(files) != 3 {
		t.Errorf("there are %d files, want 3", len(files))
	}
}

// read reads an archive.
func read(t *testing.T, in io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(text)
	}
}

func BenchmarkClean(b *testing.B) {
	line := "2026-01-01T00:00:00Z level=INFO msg=\"request\" client=192.0.2.1 route=httproute/shop/web status=200 url=/cart?id=1\n"
	text := strings.Repeat(line, 1<<20/len(line))
	c := NewCleaner()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		c.Clean(text)
	}
}
