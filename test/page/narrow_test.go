package page

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// views are all views with data.
var views = []string{
	"", "#/explain", "#/explain?target=http%3A%2F%2Fserch.shop%2F&from=shop%2Fsearch-0&method=GET", "#/gateways", "#/pod/shop/client",
	"#/policy/shop/web", "#/search?q=web", "#/service/shop/web", "#/tail", "#/top", "#/service/shop/gone",
}

// TestNarrow verifies that no view is wider than a small phone, nor is its text.
func TestNarrow(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t).URL, "#/top", chromedp.EmulateViewport(360, 740))
	p.expected = []string{"404 (Not Found)"}
	for _, view := range views {
		p.visit(view)
		if got := p.number(`document.documentElement.scrollWidth`); got > 360 {
			t.Errorf("%q is %d pixels wide, want 360", view, got)
		}
		wide := p.eval(`[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest("pre, .hidden, thead, .plot"))
			.map((e) => e.outerHTML.slice(0, 200)).slice(0, 3).join("\n")`)
		if wide != "" {
			t.Errorf("%q has parts that are not seen whole:\n%v", view, wide)
		}
	}
}

// TestMotion verifies that nothing moves for those who want that.
func TestMotion(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t).URL, "", media("prefers-reduced-motion", "reduce"))
	got := p.number(`[...document.querySelectorAll("*")].filter((e) => { const s = getComputedStyle(e); return s.transitionDuration !== "0s" || s.animationName !== "none"; }).length`)
	if got != 0 {
		t.Errorf("%d elements move, want none", got)
	}
}
