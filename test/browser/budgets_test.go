package browser

import (
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"outboard.dev/outboard/internal/respond"
	"outboard.dev/outboard/internal/ui"
)

var budgets = flag.Bool("budgets", false, "print how long the page takes at its limits")

// timed makes the page note how long each response with data takes from the request until it is drawn, as window.drawn.
const timed = `(() => {
	window.drawn = []
	const fetch = window.fetch
	window.fetch = async (path, ...rest) => {
		const began = performance.now(), response = await fetch(path, ...rest), json = response.json.bind(response)
		response.json = async () => {
			const value = await json()
			setTimeout(() => window.drawn.push({ path: String(path), ms: performance.now() - began })) // after the page has drawn it
			return value
		}
		return response
	}
	return true
})()`

// median returns the median time of 15 runs of the script, with the layout that follows from it.
func median(b *tab, script string) float64 {
	return value[float64](b, `(() => { const all = []; for (let i = 0; i < 15; i++) { const t = performance.now(); `+script+`; document.body.offsetHeight; all.push(performance.now() - t) } return all.sort((a, b) => a - b)[7] })()`)
}

// drawn returns how long the page takes from a request for the path until it has drawn the response: the median of 7, each after what
// makes it read again.
func drawn(b *tab, path string, again func(i int)) float64 {
	value[bool](b, timed)
	of := fmt.Sprintf(`window.drawn.filter(d => d.path.startsWith(%q)).map(d => d.ms)`, path)
	for i := range 7 {
		again(i)
		b.until(fmt.Sprintf(`%s.length > %d`, of, i))
	}
	return value[float64](b, of+`.slice(0, 7).sort((a, b) => a - b)[3]`)
}

// printBudgets prints what the page takes, each beside its budget. It has 5,000 nodes with 40,000 GPUs and shows them; first is how long the
// first drawing took, and heap what it takes in the end. What the server takes, BenchmarkRequest of package ui prints.
func printBudgets(t *testing.T, b *tab, f *fixture, at string, first, heap float64) {
	t.Helper()
	fmt.Printf("%-56s %10s %10s\n", "5,000 nodes, 40,000 GPUs, 10,000 waiting pods", "measured", "budget")
	print := func(what string, measured, budget float64, unit string) {
		fmt.Printf("%-56s %7.1f %-2s %7.0f %s\n", what, measured, unit, budget, unit)
	}
	print("static files, uncompressed", staticSize(t), 64, "KB")
	print("first drawn, cold", first, 1000, "ms")
	print("one update of the wall: read, parsed and drawn", drawn(b, ui.UnitsPath, func(int) { f.change(func(*fixture) {}) }), 50, "ms")
	print("hover and scroll, without the wait for the frame", median(b, `
		const c = document.querySelector('.group canvas'), box = c.getBoundingClientRect()
		c.dispatchEvent(new MouseEvent('mousemove', { bubbles: true, clientX: box.left + 20 + 7 * i, clientY: box.top + 20 + 5 * i }))
		window.scrollBy(0, i % 2 ? -40 : 40)`), 16, "ms")
	print("another size of pod", median(b, `(e => { e.value = 1 + Number(e.value) % 80; e.dispatchEvent(new Event('input')) })(document.getElementById('size'))`), 50, "ms")
	print("another order", median(b, `(e => { e.value = e.value === 'free' ? 'left' : 'free'; e.dispatchEvent(new Event('change')) })(document.getElementById('order'))`), 50, "ms")
	print("heap after 60 updates", heap, 32, "MB")
	b.visit(at + "/ui/#/waiting")
	b.until(`document.querySelector('tbody tr')`)
	print("another filter of the waiting pods: read and drawn", drawn(b, ui.WaitingPath, func(i int) {
		value[bool](b, fmt.Sprintf(`(e => { e.value = %q; e.dispatchEvent(new Event('input')); return true })(document.getElementById('waiting-find'))`, fmt.Sprint(i)))
	}), 30, "ms")
	f.mu.Lock()
	defer f.mu.Unlock()
	print("30 polls of units and overview that have all changed", 30*(zipped(t, f.units[gpuMemory])+zipped(t, f.overview))/1e6, 2, "MB")
}

// staticSize returns the size of the page's files in KB.
func staticSize(t *testing.T) float64 {
	t.Helper()
	sum, folder := int64(0), os.DirFS("../../internal/ui/static")
	err := fs.WalkDir(folder, ".", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return float64(sum) / 1000
}

// zipped returns how many bytes a response with the value has.
func zipped(t *testing.T, v any) float64 {
	t.Helper()
	w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	respond.JSON(w, req, v, nil)
	if w.Code != http.StatusOK {
		t.Fatal(w.Body)
	}
	return float64(w.Body.Len())
}
