package browser

import (
	"bytes"
	"flag"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the screenshots of the documentation")

// The screenshots of the documentation show the page as it is. A small part of the pixels may differ, such as a number of seconds.
func TestScreenshots(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 860, "light")
	for name, path := range map[string]string{
		"page-gpus": "gpus", "page-node": "node/gpu-t4-0001", "page-waiting": "waiting", "page-decision": "pod/" + f.placed(),
		"page-try": "try", "page-health": "health",
	} {
		b.visit(at + "/ui/#/" + path)
		if name == "page-try" {
			value[bool](b, `document.querySelector('button.primary').click(), true`)
			b.until(`document.querySelector('.matrix')`)
		}
		b.until(`[...document.querySelectorAll('.clamp')].every(e => e.textContent !== '…')`)
		got := b.screenshot()
		file := filepath.Join("../../docs/images", name+".png")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if part := different(t, got, want); part > 0.01 {
			t.Errorf("%s: %.1f %% of the pixels differ, at most 1 %%: make screenshots writes it again", file, 100*part)
		}
	}
}

// different returns the part of pixels that clearly differ.
func different(t *testing.T, a, b []byte) float64 {
	t.Helper()
	var images [2]image.Image
	for i, data := range [][]byte{a, b} {
		var err error
		if images[i], err = png.Decode(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	if images[0].Bounds() != images[1].Bounds() {
		return 1
	}
	n, bounds := 0, images[0].Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			r, g, b, _ := images[0].At(x, y).RGBA()
			r2, g2, b2, _ := images[1].At(x, y).RGBA()
			if max(apart(r, r2), apart(g, g2), apart(b, b2)) > 0x2000 {
				n++
			}
		}
	}
	return float64(n) / float64(bounds.Dx()*bounds.Dy())
}

func apart(a, b uint32) uint32 { return max(a, b) - min(a, b) }
