package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// hostile are texts that must stay texts, whatever they are the name of.
var hostile = []string{
	`<script>window.hit=1</script>`,
	`<img src=x onerror="window.hit=1">`,
	`"'` + "`" + ` onmouseover=window.hit=1 x="`,
	`&lt;b&gt;&amp;`,
	"web\u202etxt.exe\u202c\u2066x\u2069",                                          // changes the direction
	"web\u200b\u0000\u0007\ufeff\u00ad.shop",                                       // is not seen
	strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 60) + ".", // 253 octets
	strings.Repeat("W", 2000),
	"javascript:window.hit=1",
	"${window.hit=1}{{window.hit=1}}",
	"שלום.shop",
}

// replaced returns JSON in which each string that is not a word of the API is a hostile one, all in turn.
func replaced(value any, next func() string) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch key { // fields with fixed values, which lead to other parts of a view
			case "state", "severity", "layer", "time", "since", "notAfter", "reads":
			default:
				v[key] = replaced(inner, next)
			}
		}
	case []any:
		for i := range v {
			v[i] = replaced(v[i], next)
		}
	case string:
		return next()
	}
	return value
}

// TestHostileNames verifies that names stay text in each view, show what cannot be seen, and do not widen the page.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/gateways", chromedp.EmulateViewport(360, 800))
	p.expected = []string{"404 (Not Found)"}
	count := 0
	next := func() string {
		count++
		return hostile[count%len(hostile)]
	}
	const rounds = 3 // fields come in another order each time, and have other texts
	for range rounds {
		for view, name := range map[string]string{ // the file of the data, by view
			"": "overview", "#/": "findings", "#/top": "top", "#/search?q=x": "search", "#/service/shop/web": "services_shop_web",
			"#/policy/shop/web": "policies_shop_web", "#/pod/shop/client": "pods_shop_client", "#/gateways": "gateways", "#/explain?target=x": "explain",
		} {
			content, err := testdata.ReadFile("testdata/" + name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var value any
			if err := json.Unmarshal([]byte(dated(string(content))), &value); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.answer(strings.ReplaceAll(name, "_", "/"), replaced(value, next))
			p.visit(view)
			p.harmless(view)
		}
	}
	for _, text := range hostile {
		p.visit("#/service/" + jsEscape(text) + "/x")
		p.harmless("the address with " + text)
	}
}

// jsEscape returns a text as encodeURIComponent does.
func jsEscape(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// harmless fails the test if a text had an effect.
func (t *tab) harmless(what string) {
	t.Helper()
	for claim, expression := range map[string]string{
		"a script of a name ran":               `window.hit !== undefined`,
		"a name became an element":             `document.querySelector("main script, main img, main b b") !== null`,
		"an element has a listener or a style": `[...document.querySelectorAll("main *")].some((e) => e.getAttributeNames().some((a) => a.startsWith("on") || a === "style") && !e.closest(".plot"))`,
		"a link leads out of the page":         `[...document.links].some((a) => !a.getAttribute("href").startsWith("#"))`,
		"the page scrolls sideways":            `document.documentElement.scrollWidth > innerWidth`,
		"a character is not seen":              `/[\u202a-\u202e\u2066-\u2069\u200b\u0000\u0007\ufeff\u00ad]/.test(document.querySelector("main").textContent + document.title)`,
	} {
		if t.eval(expression) != false {
			t.Errorf("%.100s: %s:\n%.1000s", what, claim, t.text("main"))
		}
	}
}

// TestHostileEvents verifies the same of events, live and searched for.
func TestHostileEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	further := make(chan string)
	s.answer("evidence", events(t, further))
	p := open(t, s.URL, "#/tail", chromedp.EmulateViewport(360, 800))
	for _, text := range hostile {
		line, err := json.Marshal(map[string]any{
			"time": "2026-01-02T03:04:05.678Z", "kind": text, "reason": text, "client": text, "clientPod": "a/" + text,
			"subject": text, "detail": text, "weight": 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		before := p.number(`document.querySelectorAll("tbody tr").length`)
		further <- string(line)
		p.until(fmt.Sprintf(`document.querySelectorAll("tbody tr").length > %d`, before))
		p.harmless(text)

		s.answer("search", map[string]any{"items": []any{map[string]any{"kind": text, "name": text, "title": text, "detail": text, "href": text}}})
		p.eval(fmt.Sprintf(`(() => { const i = document.getElementById("search-text"); i.value = %s; i.dispatchEvent(new Event("input")); })()`, quoted(text)))
		p.until(`document.querySelectorAll("#search-list li").length > 0`)
		p.harmless("the box of search with " + text)
		if got := p.eval(`document.querySelector("#search-list script, #search-list img")`); got != nil {
			t.Errorf("in the box of search %q became an element", text)
		}
	}
}

// quoted returns a text as a literal of JavaScript.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a string has no error
	return string(b)
}
