package browser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium returns the path of the browser: the environment variable CHROMIUM, or where Debian's package has it.
func chromium() (string, error) {
	for _, path := range []string{os.Getenv("CHROMIUM"), "/usr/bin/chromium", "/usr/bin/chromium-browser"} {
		if _, err := os.Stat(path); path != "" && err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium: install it (Debian: apt-get install chromium), or set CHROMIUM to its path")
}

// otherName resolves to a loopback address in the browser, as a name can that belongs to somebody else.
const otherName = "outboard.example"

// tab is one tab of a Chromium of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	failures []string // errors on the console, and requests to other hosts
	host     string   // that the page may reach
	expected []string // parts of failures that the test causes
}

// open starts a Chromium with an empty profile. At the end, the test fails if a page has written an error to the console, violated its
// Content-Security-Policy, or asked another host for something.
func open(t *testing.T) *tab {
	t.Helper()
	path, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.DisableGPU, chromedp.Env("TZ=UTC"),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-extensions", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("host-resolver-rules", "MAP "+otherName+" 127.0.0.1"), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("js-flags", "--expose-gc"),
		chromedp.WSURLReadTimeout(time.Minute))
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatalf("starting Chromium: %v", err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.failures {
			t.Errorf("the page: %s", f)
		}
	})
	return b
}

// heard notes what no page may do.
func (b *tab) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failure := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		failure = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			failure += " " + e.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			failure = string(e.Entry.Level) + ": " + e.Entry.Text + " " + e.Entry.URL
		}
	case *runtime.EventConsoleAPICalled:
		failure = "console: " + string(e.Type)
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if b.host != "" && u.Scheme != "data" && (err != nil || u.Host != b.host) {
			failure = "a request to " + e.Request.URL
		}
	}
	if failure != "" && !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(failure, part) }) {
		b.failures = append(b.failures, failure)
	}
}

// expect accepts failures that contain the text, because the test causes them.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// visit opens an address and waits until the view has data.
func (b *tab) visit(address string) {
	b.t.Helper()
	b.navigate(address)
	b.until(`document.querySelector('main h1') && !document.querySelector('[aria-busy]') && document.getElementById('state').textContent !== 'Loading…'`)
}

// navigate opens an address.
func (b *tab) navigate(address string) {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.host = u.Host
	b.mu.Unlock()
	if err := chromedp.Do(b.ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(address)); err != nil {
		b.t.Fatalf("opening %s: %v", address, err)
	}
}

// size sets the size of the window, and light or dark.
func (b *tab) size(width, height int64, scheme string) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// until waits until the expression is true, also of a page that replaces the current one in the meantime.
func (b *tab) until(expression string) {
	b.t.Helper()
	for began := time.Now(); ; {
		_, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(time.Minute)))
		if err == nil {
			return
		}
		if !replaced(err) || time.Since(began) > time.Minute {
			b.t.Fatalf("waiting for %s: %v; the page says:\n%s", expression, err, value[string](b, `document.body.innerText`))
		}
	}
}

// replaced reports whether the browser could not evaluate something because the page has just been replaced by another one.
func replaced(err error) bool {
	e, ok := errors.AsType[*cdproto.Error](err)
	return ok && e.Code == -32000 &&
		slices.Contains([]string{"Cannot find context with specified id", "Execution context was destroyed.", "Inspected target navigated or closed"}, e.Message)
}

// value returns the value of the expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// press presses keys, one after the other.
func (b *tab) press(keys string) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.KeyEvent(keys)); err != nil {
		b.t.Fatalf("pressing %q: %v", keys, err)
	}
}

// click clicks with the mouse on the middle of the element, which must be visible.
func (b *tab) click(selector string) {
	b.t.Helper()
	at := value[[]float64](b, fmt.Sprintf(`(e => { e.scrollIntoView({ block: 'nearest' }); const box = e.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2] })(document.querySelector(%q))`, selector))
	b.clickAt(at[0], at[1])
}

// clickAt clicks with the mouse on a point of the window.
func (b *tab) clickAt(x, y float64) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.MouseClickXY(x, y)); err != nil {
		b.t.Fatalf("clicking at %g, %g: %v", x, y, err)
	}
}

// screenshot returns the visible part of the page as PNG.
func (b *tab) screenshot() []byte {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatalf("taking a screenshot: %v", err)
	}
	return png
}
