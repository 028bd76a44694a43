package extender_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// What a handler caches from one request changes no later response, for any earlier requests, valid or not, and any changes of
// the nodes since.
func TestEarlierRequestsChangeNoResponse(t *testing.T) {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	rapid.Check(t, func(rt *rapid.T) {
		var builder snapshot.Builder
		cluster := &fakeCluster{}
		change := func(rt *rapid.T) {
			for range rapid.IntRange(1, 10).Draw(rt, "changes") {
				name := rapid.SampledFrom(names[:25]).Draw(rt, "node") // some never exist
				if rapid.Bool().Draw(rt, "delete") {
					builder.DeleteNode(name)
				} else {
					builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(rapid.Int().Draw(rt, "version"))}})
				}
			}
			cluster.view = builder.View()
		}
		for _, name := range names[:20] {
			builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		change(rt)
		used, err := newHandler(cluster, 0)
		if err != nil {
			rt.Fatal(err)
		}
		asked := slices.Clone(names[:20])
		rt.Repeat(map[string]func(*rapid.T){
			"cluster changes": change,
			"ask others":      func(rt *rapid.T) { asked = rapid.SliceOfN(rapid.SampledFrom(names), 1, 30).Draw(rt, "names") },
			"ask others, each once": func(rt *rapid.T) {
				asked = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 30, rapid.ID[string]).Draw(rt, "names")
			},
			"ask the others way round": func(rt *rapid.T) {
				at := rapid.IntRange(0, len(asked)-1).Draw(rt, "at")
				asked = append(slices.Clone(asked[at:]), asked[:at]...)
			},
			"ask another one": func(rt *rapid.T) {
				asked = slices.Clone(asked)
				asked[rapid.IntRange(0, len(asked)-1).Draw(rt, "at")] = rapid.SampledFrom(names).Draw(rt, "name")
			},
			"ask again": func(*rapid.T) {},
			"": func(rt *rapid.T) {
				body := []byte(encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: &asked}))
				fresh, err := newHandler(cluster, 0)
				if err != nil {
					rt.Fatal(err)
				}
				if got, want := answer(used, body), answer(fresh, body); got != want {
					rt.Fatalf("request %v: a handler with earlier requests returns\n%s\na new one\n%s", asked, got, want)
				}
			},
		})
	})
}

func answer(h http.Handler, body []byte) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/filter", bytes.NewReader(body)))
	return w.Body.String()
}

// Nothing that is cached from an invalid request lets the same request pass later.
func TestRefusedRequestIsRefusedAgain(t *testing.T) {
	h, err := newHandler(&fakeCluster{view: view(threeNodes)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(names ...string) string {
		return answer(h, []byte(encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: &names})))
	}
	good := ask("good", "wrong")
	for range 3 {
		if got := ask("good", "wrong"); got != good {
			t.Fatalf("%s, and then %s", good, got)
		}
	}
	for range 3 {
		if got := ask("good", "good"); !strings.Contains(got, "in the request twice") {
			t.Fatalf("a request with a node twice: %s", got)
		}
	}
}
