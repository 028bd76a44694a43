package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// Whoever types, or chooses with keys, goes on where they are when the view has followed: the address changes, and the view reads again.
func TestFocusStaysWithAChoice(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 900, "light")
	ready := func(hash string) {
		t.Helper()
		b.until(fmt.Sprintf(`location.hash === %q && !document.querySelector('[aria-busy]')`, hash))
	}
	b.visit(at + "/ui/#/waiting")
	value[bool](b, `document.getElementById('waiting-find').focus(), true`)
	b.press("t")
	ready("#/waiting?find=t")
	b.press("r")
	ready("#/waiting?find=tr")
	b.press("ain")
	ready("#/waiting?find=train")
	b.press(kb.Tab)
	b.until(`document.activeElement.id === 'waiting-sort'`)
	b.press(kb.ArrowDown)
	ready("#/waiting?find=train&sort=pods")
	b.until(`document.activeElement.id === 'waiting-sort'`)
	b.visit(at + "/ui/#/waiting")
	b.until(`document.querySelectorAll('.chips a').length > 2`)
	value[bool](b, `document.querySelectorAll('.chips a')[1].focus(), true`)
	reason := value[string](b, `document.activeElement.hash`)
	b.press(kb.Enter)
	ready(reason)
	b.until(fmt.Sprintf(`document.activeElement.hash === %q && document.activeElement.hasAttribute('aria-current')`, reason))
}
