package browser

import "testing"

// Without nodes, a pod fits nowhere because of that, and no change of the pod is missing.
func TestTryWithoutNodes(t *testing.T) {
	f := cluster()
	f.replica = newWorld().handlers("a")
	b, at := browse(t, f)
	b.visit(at + "/ui/#/try")
	b.click("button.primary")
	b.until(`document.querySelector('.answer h2')`)
	b.until(`(text => text.includes('the cluster has no nodes') && !text.includes('change'))(document.querySelector('.answer').innerText)`)
}
