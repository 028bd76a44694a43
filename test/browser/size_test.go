package browser

import (
	"testing"
)

// maxStatic is how large the files of the page may be, in KB. Whoever adds something looks first for what
// the server does better, and for what nobody needs any more.
const maxStatic = 64.0

func TestStaticSize(t *testing.T) {
	if size := staticSize(t); size > maxStatic {
		t.Errorf("the files of the page have %.2f KB, at most %.2f", size, maxStatic)
	}
}
