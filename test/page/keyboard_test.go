package page

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"
)

// slash is the key /. KeyEvent types the character even if the page takes the key for itself.
var slash = command(input.DispatchKeyEvent, input.DispatchKeyEventParams{
	Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/",
})

// TestSearchByKeyboard verifies that an object is found, chosen and shown without a mouse.
func TestSearchByKeyboard(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/gateways")
	p.run(slash)
	p.until(`document.activeElement.id === "search-text"`)
	p.press("web")
	p.until(`document.querySelectorAll("#search-list li").length === 4`)
	chosen := func() any {
		return p.eval(`document.querySelector('#search-list [aria-selected="true"]')?.innerText.split("\n")[0] ?? ""`)
	}
	for _, step := range []struct{ key, want string }{
		{kb.ArrowDown, "shop/web Service"}, {kb.ArrowDown, "shop/web-0 Pod"}, {kb.ArrowUp, "shop/web Service"},
		{kb.ArrowUp, "web Explain"}, {kb.ArrowDown, "shop/web Service"},
	} {
		p.press(step.key)
		if got := chosen(); got != step.want {
			t.Errorf("after %q the choice is %q, want %q", step.key, got, step.want)
		}
		if p.eval(`document.getElementById(document.getElementById("search-text").getAttribute("aria-activedescendant"))?.getAttribute("aria-selected")`) != "true" {
			t.Errorf("after %q aria-activedescendant is not what is chosen", step.key)
		}
	}
	p.press(kb.Escape)
	p.until(`document.getElementById("search-list").hidden && document.getElementById("search-text").value === "web"`)
	p.press(kb.ArrowDown, kb.Enter)
	p.until(`location.hash === "#/service/shop/web"`)
	p.settled()
	if got := p.eval(`document.activeElement.tagName + ": " + document.activeElement.textContent`); got != "H1: Service shop/web" {
		t.Errorf("the focus is on %q, want the heading of the view", got)
	}

	p.run(slash)
	p.press("x y", kb.Enter)
	p.until(`location.hash === "#/search?q=x+y"`)
	if p.eval(`document.getElementById("search-list").hidden`) != true {
		t.Error("the list is still open")
	}
}

// TestFocus verifies that all that can be used is reached by the key Tab, in the order in which it is seen, and shows
// that it has the focus.
func TestFocus(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t).URL, "#/service/shop/web")
	p.eval(`document.activeElement.blur()`)
	var order []string
	for range 60 {
		p.press("\t")
		at, _ := p.eval(`document.activeElement === document.body ? "" : document.activeElement.textContent.trim() || document.activeElement.id`).(string)
		if at == "" {
			break
		}
		order = append(order, at)
		if p.eval(`(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2; })()`) != true {
			t.Errorf("nothing shows that %q has the focus", at)
		}
	}
	want := []string{"Skip to the content", "Portolan", "Overview", "Explain", "Gateways", "Top failures", "Live", "search-text",
		"Explain a connection to it", "Watch its events", "web-2"}
	if len(order) < len(want) || strings.Join(order[:len(want)], "|") != strings.Join(want, "|") {
		t.Errorf("the key Tab leads to %q, want first %q", order, want)
	}
	p.eval(`document.getElementById("skip").focus()`)
	p.press(kb.Enter)
	if got := p.eval(`document.activeElement.id + location.hash`); got != "main#/service/shop/web" {
		t.Errorf("the first link leads to %q, want main, in the same view", got)
	}
}
