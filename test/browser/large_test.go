package browser

import (
	"fmt"
	"testing"
	"time"
)

// At 5,000 nodes with 40,000 GPUs, 30,000 pods and 10,000 waiting pods, the page keeps few elements and no old data, and reads nothing
// that has not changed.
func TestLarge(t *testing.T) {
	f := large()
	b, at := browse(t, f)
	b.size(1280, 900, "light")
	began := time.Now()
	b.visit(at + "/ui/#/gpus")
	b.until(`document.querySelectorAll('.group canvas').length === 3`)
	first := time.Since(began)
	for path, ready := range map[string]string{"gpus": `.group canvas`, "gpus?table=1": `tbody tr`, "waiting": `tbody tr`, "held": `tbody tr`} {
		b.visit(at + "/ui/#/" + path)
		b.until(fmt.Sprintf(`document.querySelector(%q)`, ready))
		if n := value[int](b, `document.querySelectorAll('*').length`); n > 1500 {
			t.Errorf("%s: %d elements, at most 1,500", path, n)
		}
	}

	b.visit(at + "/ui/#/gpus")
	b.until(`document.querySelector('.group canvas')`)
	read := func(requests int) (bytes int) {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			f.mu.Lock()
			n, bytes := f.requests, f.bytes
			f.mu.Unlock()
			if n >= requests {
				return bytes
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d requests in a minute, want %d", n, requests)
			}
		}
	}
	f.change(func(f *fixture) { f.requests, f.bytes = 0, 0 })
	before := read(4) // the units and the overview again, because they have changed
	if after := read(10); after != before {
		t.Errorf("the page read %d bytes again that had not changed", after-before)
	}

	// The heap does not grow with updates.
	heap := func(updates int) float64 {
		for range updates {
			f.change(func(f *fixture) { f.overview.Replicas[0].Generation++ })
			value[bool](b, `(e => { e.value = 1 + Number(e.value) % 80; e.dispatchEvent(new Event('input')); return true })(document.getElementById('size'))`)
		}
		return value[float64](b, `(gc(), performance.memory.usedJSHeapSize / 1e6)`)
	}
	early := heap(15)
	late := heap(45)
	if late > early*1.3+2 {
		t.Errorf("the heap grew from %.1f to %.1f MB in 45 updates", early, late)
	}
	if *budgets {
		printBudgets(t, b, f, at, first.Seconds()*1000, late)
	}
}
