package schedplugin

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ui"
)

// The pods that the plugin places are those of its kube-scheduler's profiles, whatever
// schedulerNames says: explain, the page and the metrics have these, and no others.
func TestPodsOfTheProfilesAreShown(t *testing.T) {
	of := func(name, scheduler string) *corev1.Pod {
		pod := podNamed(name, web)
		pod.Spec.SchedulerName = scheduler
		return pod
	}
	for _, names := range []string{"", "schedulerNames: [default-scheduler], "} {
		configuration := strings.Replace(onePerNode, "{policies", "{"+names+"policies", 1)
		s := scheduleAs(t, "my-scheduler", 1, configuration, of("mine", "my-scheduler"), of("other", corev1.DefaultSchedulerName))
		get := func(pattern, query string, into any) {
			t.Helper()
			w := httptest.NewRecorder()
			s.service.AdminOptions().Handlers["GET "+pattern].ServeHTTP(w, httptest.NewRequest("GET", pattern+query, nil))
			if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
				t.Fatal(err, w.Body)
			}
		}
		var doc explain.Document
		if get(explain.Path, "?pod=mine", &doc); len(doc.Now) != 1 || doc.Now[0].Refused != "" {
			t.Errorf("%swith explain: %+v", names, doc.Now)
		}
		var waiting ui.Waiting
		if get(ui.WaitingPath, "", &waiting); waiting.Pods != 1 || waiting.Rows[0].Pod != "default/mine" {
			t.Errorf("%son the page: %+v", names, waiting)
		}
		s.eventually("a survey", func() bool {
			n, err := testutil.GatherAndCount(s.registry, "outboard_survey_duration_seconds")
			return n == 1 && err == nil
		})
		if err := testutil.GatherAndCompare(s.registry, strings.NewReader(`
# HELP outboard_waiting_pods Pods that wait for a node, by reason: POLICY.REASON of the most nodes if Outboard rejected them all, or gated, not_tried, scheduler_error, other_scheduler, policy_error or other.
# TYPE outboard_waiting_pods gauge
outboard_waiting_pods{reason="not_tried"} 1
`), "outboard_waiting_pods"); err != nil {
			t.Errorf("%sin the metrics: %v", names, err)
		}
	}
}
