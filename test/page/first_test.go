package page

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// The limits of the first view.
const (
	mostBytes = 150 << 10
	mostTime  = 200 * time.Millisecond
)

// TestFirstView verifies how much the first view transfers with an empty cache, and prints how long it takes. The time is
// that from the start of the navigation until the data are shown; it is the machine's, and does not fail the test.
func TestFirstView(t *testing.T) {
	p := open(t, serve(t).URL, "#/explain", uncached, watched(".plot canvas"))
	firstView(p)
}

// uncached has each document loaded as by a browser that has never seen the page.
var uncached = command(network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})

// firstView opens the page some times, logs what it transfers and the shortest time until it is shown, and fails if it
// transfers too much.
func firstView(p *tab) {
	p.Helper()
	const rounds = 5
	best := time.Hour
	for range rounds {
		p.run(chromedp.Navigate("about:blank"))
		p.mu.Lock()
		p.bytes, p.requests = 0, 0
		p.mu.Unlock()
		p.run(chromedp.Navigate(p.base + "/"))
		p.until("window.shown")
		best = min(best, time.Duration(p.number("window.shown"))*time.Millisecond)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Logf("first view: %.0f octets in %d requests (%.2f of the limit), %d ms (%.2f of the limit)", p.bytes, p.requests,
		p.bytes/mostBytes, best.Milliseconds(), float64(best)/float64(mostTime))
	if p.bytes > mostBytes || p.bytes < 10_000 {
		p.Errorf("the first view transfers %.0f octets in %d requests, want at most %d", p.bytes, p.requests, mostBytes)
	}
}

// watched has each document note when its first view is complete, and has an element.
func watched(selector string) step {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: fmt.Sprintf(`new MutationObserver(() => {
			window.shown ??= document.querySelector("main:not([aria-busy]) %s") ? performance.now() : undefined;
		}).observe(document, { subtree: true, childList: true, attributes: true })`, selector),
		})
		return err
	})
}
