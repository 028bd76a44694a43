package browser

import (
	"fmt"
	"image/color"
	"math"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"outboard.dev/outboard/internal/ui"
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

// The kinds of squares differ for people who see fewer colors.
func TestColors(t *testing.T) {
	f := cluster()
	f.units[gpuMemory] = ui.Units{
		Resource: f.units[gpuMemory].Resource, Noun: "GPU", Groups: []string{"all"}, Nodes: []string{"n"}, Group: []int64{0, 1}, Count: []int64{4, 1},
		Capacity: []int64{80, 4}, Used: []int64{0, 79, 80, 0}, Reserved: []int64{0, 4}, Flags: []int64{0, 3, ui.Unhealthy, 1},
	}
	b, at := browse(t, f)
	for _, scheme := range []string{"light", "dark"} {
		b.size(1280, 900, scheme)
		b.visit(at + "/ui/#/gpus")
		colors := value[map[string]string](b, `(() => { const s = getComputedStyle(document.documentElement); return Object.fromEntries(['fits', 'little', 'used', 'mark', 'page'].map(n => [n, s.getPropertyValue('--' + n).trim()])) })()`)
		for _, kind := range []emulation.SetEmulatedVisionDeficiencyType{"none", "protanopia", "deuteranopia", "tritanopia", "achromatopsia"} {
			seen := map[string][3]float64{}
			for name, hex := range colors {
				var c color.RGBA
				if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
					t.Fatalf("%s: %q: %v", name, hex, err)
				}
				seen[name] = lab(simulated(kind, c))
			}
			for _, pair := range [][2]string{{"fits", "little"}, {"fits", "used"}, {"little", "used"}, {"used", "mark"}, {"used", "page"}, {"fits", "page"}} {
				if d := distance(seen[pair[0]], seen[pair[1]]); d < 15 {
					t.Errorf("%s, %s: %s and %s differ by %.0f, at least 15", scheme, kind, pair[0], pair[1], d)
				}
			}
		}
	}
}

// simulated returns how somebody with a deficiency sees the color: the matrices of Machado, Oliveira and Fernandes, "A Physiologically-based
// Model for Simulation of Color Vision Deficiency" (2009), severity 1, applied to linear RGB; achromatopsia is the luminance.
func simulated(kind emulation.SetEmulatedVisionDeficiencyType, c color.RGBA) [3]float64 {
	rgb := [3]float64{linear(c.R), linear(c.G), linear(c.B)}
	m, ok := map[emulation.SetEmulatedVisionDeficiencyType][3][3]float64{
		"protanopia":    {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
		"deuteranopia":  {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
		"tritanopia":    {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
		"achromatopsia": {{0.2126, 0.7152, 0.0722}, {0.2126, 0.7152, 0.0722}, {0.2126, 0.7152, 0.0722}},
	}[kind]
	if !ok {
		return rgb
	}
	var out [3]float64
	for i := range out {
		for j := range rgb {
			out[i] += m[i][j] * rgb[j]
		}
		out[i] = max(0, min(1, out[i]))
	}
	return out
}

func linear(v uint8) float64 {
	x := float64(v) / 255
	if x <= 0.04045 {
		return x / 12.92
	}
	return math.Pow((x+0.055)/1.055, 2.4)
}

// lab returns the color in CIE L*a*b* with the white of sRGB, and distance the difference of two of them (CIE 1976).
func lab(rgb [3]float64) [3]float64 {
	x := (0.4124*rgb[0] + 0.3576*rgb[1] + 0.1805*rgb[2]) / 0.95047
	y := 0.2126*rgb[0] + 0.7152*rgb[1] + 0.0722*rgb[2]
	z := (0.0193*rgb[0] + 0.1192*rgb[1] + 0.9505*rgb[2]) / 1.08883
	f := func(t float64) float64 {
		if t > 216.0/24389 {
			return math.Cbrt(t)
		}
		return (24389.0/27*t + 16) / 116
	}
	return [3]float64{116*f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))}
}

func distance(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}
