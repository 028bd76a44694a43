package extender_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// nowhere is a ResponseWriter that discards everything.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}

// In names mode a call makes as many allocations for 5,000 nodes as for 100.
func TestAllocationsDoNotGrowWithNodes(t *testing.T) {
	allocations := func(size, shortlist int) float64 {
		handler, err := newHandler(benchmarkCluster(size), shortlist)
		if err != nil {
			t.Fatal(err)
		}
		asked := make([]string, size)
		for i := range asked {
			asked[i] = benchmarkNode(i).Name
		}
		body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: benchmarkPod(), NodeNames: &asked})
		if err != nil {
			t.Fatal(err)
		}
		n, w := 0, nowhere{http.Header{}}
		call := func() {
			n++
			req, err := http.NewRequest(http.MethodPost, "/filter", io.NopCloser(bytes.NewReader(fresh(body, n))))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = int64(len(body))
			handler.ServeHTTP(w, req)
		}
		for range 150 { // until buffers and caches have their final size
			call()
		}
		return testing.AllocsPerRun(150, call)
	}
	for _, shortlist := range []int{0, 1} {
		few, many := allocations(100, shortlist), allocations(5000, shortlist)
		// A few more allocations occur when a pool is empty: after a garbage collection, and at random under the race detector.
		// One for each hundred nodes would be growth.
		if many > few+49 {
			t.Errorf("shortlist %d: %.0f allocations for 100 nodes, %.0f for 5,000", shortlist, few, many)
		}
		t.Logf("shortlist %d: %.0f allocations for 100 nodes, %.0f for 5,000", shortlist, few, many)
	}
}
