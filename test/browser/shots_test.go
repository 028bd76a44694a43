package browser

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func TestShots(t *testing.T) {
	out := os.Getenv("SHOTS")
	if out == "" {
		t.Skip()
	}
	f := cluster()
	s := httptest.NewServer(f)
	defer s.Close()
	b := open(t)
	row := f.held.Rows[0]
	views := map[string]string{
		"waiting": "waiting", "gpus": "gpus?node=gpu-h100-0011&unit=0", "pod": "pod/" + f.pods[0].Pod, "runs": "pod/" + row.Namespace + "/" + row.Pod,
		"try": "try", "held": "held", "signals": "signals", "health": "health", "licenses": "gpus?resource=solver",
	}
	for name, path := range views {
		for _, scheme := range []string{"light", "dark"} {
			for _, size := range [][2]int64{{1280, 900}, {320, 640}} {
				if scheme == "dark" && size[0] == 320 {
					continue
				}
				b.size(size[0], size[1], scheme)
				b.visit(s.URL + "/ui/#/" + path)
				if name == "try" {
					value[bool](b, `document.querySelector('button.primary').click(), true`)
				}
				value[bool](b, `new Promise(r => setTimeout(() => r(true), 400))`)
				if err := os.WriteFile(filepath.Join(out, name+"-"+scheme+"-"+map[int64]string{1280: "wide", 320: "small"}[size[0]]+".png"), b.screenshot(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
