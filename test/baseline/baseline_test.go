package baseline_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/test/baseline"
)

func post(handler http.HandlerFunc, path string, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	return w
}

// The extenders compared with Outboard are comparable: each responds to a filter call with the
// names in the order of the call.
func TestResponsesHaveTheNames(t *testing.T) {
	names := []string{"node-00007", "node-00001", "node-00003"}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, NodeNames: &names})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    []string
		scores  int
	}{
		{"tutorial", baseline.Tutorial, names, 3},
		{"ideal", baseline.Ideal(0), names, 0},
		{"ideal with scores", baseline.IdealScores(), names, 2},
		{"ideal, shortlist 1", baseline.Ideal(1), names[:1], 0},
		{"ideal, shortlist 2", baseline.Ideal(2), names[:2], 0},
		{"ideal, shortlist 3", baseline.Ideal(3), names, 0},
		{"ideal, shortlist 8", baseline.Ideal(8), names, 0},
	} {
		var result extenderv1.ExtenderFilterResult
		w := post(tt.handler, "/filter", body)
		if err := json.Unmarshal(w.Body.Bytes(), &result); err != nil || result.NodeNames == nil || !slices.Equal(*result.NodeNames, tt.want) || result.Error != "" {
			t.Errorf("%s: filter returns %s (%v), want the names %q", tt.name, w.Body, err, tt.want)
		}
		var scores extenderv1.HostPriorityList
		w = post(tt.handler, "/prioritize", body)
		if err := json.Unmarshal(w.Body.Bytes(), &scores); err != nil || len(scores) != tt.scores {
			t.Errorf("%s: prioritize returns %s (%v), want %d scores", tt.name, w.Body, err, tt.scores)
		}
	}
}

func TestTutorialResponseHasTheNodes(t *testing.T) {
	nodes := &corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: &corev1.Pod{}, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	var result extenderv1.ExtenderFilterResult
	w := post(baseline.Tutorial, "/filter", body)
	if err := json.Unmarshal(w.Body.Bytes(), &result); err != nil || result.Nodes == nil || len(result.Nodes.Items) != 2 || result.Nodes.Items[1].Name != "b" {
		t.Errorf("filter returns %s (%v)", w.Body, err)
	}
	var scores extenderv1.HostPriorityList
	w = post(baseline.Tutorial, "/prioritize", body)
	if err := json.Unmarshal(w.Body.Bytes(), &scores); err != nil || len(scores) != 2 || scores[1].Host != "b" {
		t.Errorf("prioritize returns %s (%v)", w.Body, err)
	}
}

// If an arm gets an unsupported call, the measurement fails, and does not count the call as
// answered.
func TestRejectsOtherBodies(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{"tutorial": baseline.Tutorial, "ideal": baseline.Ideal(8)} {
		if w := post(handler, "/filter", []byte(`{"Pod":{}}`)); w.Code != http.StatusBadRequest {
			t.Errorf("%s responds to a call without nodes with %d %s", name, w.Code, w.Body)
		}
	}
}
