package page

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"portolan.dev/portolan/test/await"
)

var update = flag.Bool("update", false, "write the pictures in docs/page")

// newTab returns the context of a tab in the Chromium of all tests, and what closes it.
var newTab func() (context.Context, context.CancelFunc)

// TestMain starts Chromium.
func TestMain(m *testing.M) {
	flag.Parse()
	program, err := chromium()
	if err != nil {
		fmt.Println("skipped: the page is tested in Chromium, which is missing (Debian: apt-get install chromium)")
		os.Exit(0)
	}
	os.Exit(run(m, program))
}

func run(m *testing.M, program string) int {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WSURLReadTimeout(await.Patience))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which does not work as root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, closeBrowser := chromedp.NewContext(allocator)
	defer closeBrowser()
	newTab = func() (context.Context, context.CancelFunc) { return chromedp.NewContext(ctx) }
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "start Chromium:", err)
		return 1
	}
	return m.Run()
}

// chromium returns the path of the program.
func chromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// tab is a tab with the page.
type tab struct {
	testing.TB
	ctx  context.Context
	base string // the address of the server

	mu       sync.Mutex
	problems []string
	bytes    float64
	requests int
	// expected are parts of messages that are no problem.
	expected []string
}

// step is something that is done in a tab.
type step = chromedp.Action[chromedp.Void]

// open opens a view in a tab. When the test ends it fails if the page had an error, broke its
// Content-Security-Policy, or sent a request to another server.
func open(tb testing.TB, base, view string, before ...step) *tab {
	tb.Helper()
	ctx, stop := newTab()
	tb.Cleanup(stop)
	t := &tab{TB: tb, ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, t.listen); err != nil {
		tb.Fatalf("chromedp.Listen: %v", err)
	}
	tb.Cleanup(t.check)
	t.run(command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), chromedp.EmulateViewport(1100, 800))
	t.run(before...)
	t.visit(view)
	return t
}

// command is a step of a command without a result.
func command[P any](c cdp.Command[P, cdp.Empty], params P) step {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, c, params)
		return err
	})
}

// media sets a feature of the medium, such as prefers-color-scheme.
func media(feature, value string) step {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
	})
}

// listen notes what the page does.
func (t *tab) listen(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		t.requests++
		if !strings.HasPrefix(e.Request.URL, t.base) && e.Request.URL != "about:blank" {
			t.problems = append(t.problems, "request to "+e.Request.URL)
		}
	case *network.EventLoadingFinished:
		t.bytes += e.EncodedDataLength
	case *runtime.EventExceptionThrown:
		t.problems = append(t.problems, "exception: "+(&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		for _, argument := range e.Args {
			t.problems = append(t.problems, fmt.Sprintf("console.%s: %s %s", e.Type, argument.Value, argument.Description))
		}
	case *log.EventEntryAdded:
		t.problems = append(t.problems, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	}
}

// check fails the test if there were problems.
func (t *tab) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
next:
	for _, problem := range t.problems {
		for _, part := range t.expected {
			if strings.Contains(problem, part) {
				continue next
			}
		}
		t.Errorf("%s", problem)
	}
}

// run runs steps in the tab.
func (t *tab) run(steps ...step) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.ctx, await.Patience)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatalf("chromedp.Do: %v", err)
	}
}

// visit shows a view, and waits until it is there.
func (t *tab) visit(view string) {
	t.Helper()
	t.run(chromedp.Navigate("about:blank"), chromedp.Navigate(t.base+"/"+view))
	t.settled()
}

// settled waits until the view is there, and has all that it waits for.
func (t *tab) settled() {
	t.Helper()
	t.until(`document.querySelector("h1")?.textContent && !document.querySelector("main[aria-busy]")`)
}

// eval returns the value of a JavaScript expression. Promises are awaited.
func (t *tab) eval(expression string) any {
	t.Helper()
	ctx, stop := context.WithTimeout(t.ctx, await.Patience)
	defer stop()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[any](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("eval(%.200s): %v", expression, err)
	}
	return value
}

// until waits until a JavaScript expression is true.
func (t *tab) until(condition string) {
	t.Helper()
	err := await.Within(await.Answer, func() error {
		if ok, _ := t.eval("Boolean(" + condition + ")").(bool); !ok {
			return errors.New("it is false")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("until(%s): %v; the page has:\n%s", condition, err, t.text("body"))
	}
}

// text returns the text of the first element, as it is seen.
func (t *tab) text(selector string) string {
	t.Helper()
	text, _ := t.eval(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector)).(string)
	return text
}

// number returns the value of a JavaScript expression that is a number.
func (t *tab) number(expression string) int {
	t.Helper()
	n, _ := t.eval(expression).(float64)
	return int(n)
}

// press presses keys, one after the other.
func (t *tab) press(keys ...string) {
	t.Helper()
	for _, key := range keys {
		t.run(chromedp.KeyEvent(key))
	}
}

// wants fails the test for each text that the view does not have.
func (t *tab) wants(texts ...string) {
	t.Helper()
	got := t.text("main")
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%s lacks %q:\n%s", t.eval("location.hash"), text, got)
		}
	}
}

// inOrder fails the test unless the view has the texts in this order.
func (t *tab) inOrder(texts ...string) {
	t.Helper()
	got := t.text("main")
	rest := got
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("%s lacks %q, or not in this order:\n%s", t.eval("location.hash"), text, got)
			return
		}
		rest = after
	}
}
