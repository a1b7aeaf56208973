package page

import (
	"fmt"
	"testing"
)

// TestMany verifies that views of thousands of rows show some of them, with a way to the others.
func TestMany(t *testing.T) {
	t.Parallel()
	const n = 10_000
	s := serve(t)
	var endpoints, items, agents []any
	for i := range n {
		endpoints = append(endpoints, map[string]any{"address": fmt.Sprintf("10.1.%d.%d:80", i>>8, i&255), "used": i%2 == 0, "why": "it is not ready"})
		items = append(items, map[string]any{"kind": "Service", "title": fmt.Sprintf("shop/web-%d", i), "href": "#/service/shop/web"})
		agents = append(agents, map[string]any{"node": fmt.Sprintf("node-%d", i), "ready": false})
	}
	s.answer("services/shop/web", map[string]any{"namespace": "shop", "name": "web", "endpoints": endpoints})
	s.answer("search", map[string]any{"items": items, "more": true})
	s.answer("overview", map[string]any{"agents": agents})
	p := open(t, s.URL, "#/service/shop/web")
	elements := `document.querySelectorAll("*").length`
	for _, view := range []string{"#/service/shop/web", "#/search?q=web", ""} {
		p.visit(view)
		if got := p.number(elements); got > 3000 {
			t.Errorf("%q has %d elements, want at most 3000", view, got)
		}
	}
	p.visit("#/service/shop/web")
	p.inOrder("50 of 10,000 are shown.", "Show 50 more")
	p.eval(`[...document.querySelectorAll("button")].find((b) => b.textContent === "Show 50 more").click()`)
	p.wants("100 of 10,000 are shown.")
	p.visit("")
	p.inOrder("10,000 things need attention", "Show 9,990 more")

	p.eval(`document.getElementById("search-text").focus()`)
	p.press("web")
	p.until(`document.querySelectorAll("#search-list li").length > 0`)
	if got := p.number(`document.querySelectorAll("#search-list li").length`); got > 13 {
		t.Errorf("the box of search lists %d items, want at most 13", got)
	}
}
