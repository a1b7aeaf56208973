package page

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestTour takes the pictures of the tour with -update, from the manifests that its commands read, and else verifies
// that they are there and have the size of the views.
func TestTour(t *testing.T) {
	t.Parallel()
	url := start(t, "../../examples/tour", "--simulate")
	for name, view := range map[string]string{
		"tour-service": "#/service/webshop/orders",
		"tour-explain": "#/explain?target=http%3A%2F%2Fcart%2F&from=webshop%2Fdeployment%2Ffrontend",
	} {
		p := open(t, url, view, media("prefers-color-scheme", "light"), chromedp.EmulateViewport(1100, 1000))
		shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compare(t, name, shot)
	}
}
