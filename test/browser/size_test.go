package browser

import (
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/ui"
)

// maxStatic is how large the files of the page may be, in KB. Whoever adds something looks first for what
// the server does better, and for what nobody needs any more.
const maxStatic = 64.0

func TestStaticSize(t *testing.T) {
	if size := staticSize(t); size > maxStatic {
		t.Errorf("the files of the page have %.2f KB, at most %.2f", size, maxStatic)
	}
}

// unused removes from window.selectors, which it fills first, those that match an element.
const unused = `(() => {
	const leaves = rules => [...rules].flatMap(r => r.selectorText ? r.selectorText.split(/,(?![^(]*\))/) : r.cssRules ? leaves(r.cssRules) : [])
	window.selectors ??= [...new Set(leaves(document.styleSheets[0].cssRules).map(s => s.trim()))]
	window.selectors = selectors.filter(s => !document.querySelector(s.replace(/:(hover|focus-visible|focus)|::[a-z]+/g, '') || '*'))
	return selectors
})()`

// Every selector of the style sheet matches an element of some view in some state.
func TestStylesAreUsed(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.expect("503")
	b.expect("400")
	b.size(1280, 900, "light")
	b.visit(at + "/ui/")
	left := value[[]string](b, unused)
	look := func(path string, ready ...string) {
		t.Helper()
		if path != "" { // without a reload, so that the selectors stay; the event of the browser comes later
			value[bool](b, `location.hash = '#/`+path+`', window.dispatchEvent(new HashChangeEvent('hashchange'))`)
		}
		b.until(strings.Join(append(ready, `document.querySelector('main h1') && !document.querySelector('[aria-busy]')`), " && "))
		left = value[[]string](b, unused)
	}
	for _, path := range f.paths() {
		look(path)
	}
	look("waiting?find=zebra", `document.querySelector('.empty')`)
	look("gpus", `document.querySelector('.group canvas')`)
	look("try")
	value[bool](b, `document.querySelector('button.primary').click(), true`)
	look("", `document.querySelector('.matrix')`)
	f.change(func(f *fixture) {
		f.overview.Replicas[1] = ui.Replica{Name: "b", Error: "connection refused"}
		f.signals.Signals[0].Missing = 3
	})
	look("health", `document.querySelector('.notice')`)
	look("signals", `document.querySelector('.warn')`)
	// In one expression, after which the data may come at once.
	left = value[[]string](b, `location.hash = '#/held', window.dispatchEvent(new HashChangeEvent('hashchange')), `+unused)
	look("try")
	value[bool](b, `document.getElementById('manifest').value = 'kind: Nothing', document.querySelector('button.primary').click(), true`)
	look("", `document.querySelector('pre.bad')`)
	f.change(func(f *fixture) { f.broken = 503 })
	look("", `document.querySelector('.notice.bad')`)
	if len(left) > 0 {
		slices.Sort(left)
		t.Errorf("no element matches\n%s", strings.Join(left, "\n"))
	}
}
