package verify_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/extender/verify"
)

func TestRulesAreCompleteAndEachHasABrokenExtender(t *testing.T) {
	tested := map[string]bool{"encrypted": true}
	for _, test := range brokenExtenders {
		tested[test.rule] = true
	}
	for _, test := range securityCases {
		for _, rule := range test.want {
			tested[rule] = true
		}
	}
	seen := make(map[string]bool)
	for _, rule := range verify.Rules() {
		if rule.ID == "" || seen[rule.ID] || rule.Statement == "" || rule.Consequence == "" || rule.Severity == "" {
			t.Errorf("got rule %+v", rule)
		}
		if !tested[rule.ID] {
			t.Errorf("no test violates %s", rule.ID)
		}
		seen[rule.ID] = true
	}
}

func TestReportInTextAndJSON(t *testing.T) {
	o := quick(verify.Options{
		URL: strings.Replace(serve(t, scored(func(s *extenderv1.HostPriorityList) { add(s, 90) })()), "http://", "http://user:password@", 1),
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2"}}}},
		}},
	})
	prioritize(&o)
	report := run(t, o)
	var data bytes.Buffer
	if err := report.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	written := text(t, report)
	for _, want := range []string{
		"✗ score-range ", "✓ score-once ", "– subset ", "(filter is not checked)", "p50 ×",
		"✗ score-range (error): scores are between 0 and 10, or --max-score\n    sent  POST prioritize: 10 nodes, names mode\n    got   200 OK, ",
		"which is not between 0 and 10", "In kube-scheduler: Scores are not clamped", "(failed: 1 error, 1 warning, 0 note)",
	} {
		if !strings.Contains(written, want) {
			t.Errorf("the text has no %q:\n%s", want, written)
		}
	}
	for _, secret := range []string{"hunter2", "password"} {
		if strings.Contains(written, secret) || strings.Contains(data.String(), secret) {
			t.Errorf("the report shows %q", secret)
		}
	}

	var decoded struct {
		OK      *bool
		Results []struct {
			ID, Severity, Outcome string
			Findings              []verify.Finding
		}
		Latencies []verify.Latency
	}
	if err := json.Unmarshal(data.Bytes(), &decoded); err != nil {
		t.Fatal(err)
	}
	if decoded.OK == nil || *decoded.OK || len(decoded.Results) != len(verify.Rules()) {
		t.Errorf("ok and %d results in %s", len(decoded.Results), data.String())
	}
	i := slices.IndexFunc(verify.Rules(), func(r verify.Rule) bool { return r.ID == "score-range" })
	if r := decoded.Results[i]; r.ID != "score-range" || r.Severity != "error" || r.Outcome != "failed" || len(r.Findings) == 0 {
		t.Errorf("got score-range %+v", r)
	}
	for _, l := range decoded.Latencies {
		p50, p99 := l.Ratios()
		if l.Verb != "prioritize" || l.Calls == 0 || l.P50 <= 0 || l.P99 < l.P50 || p50 <= 0 || p99 <= 0 || l.Imaginary != l.Nodes {
			t.Errorf("got latency %+v", l)
		}
	}
	if len(decoded.Latencies) != len(o.Sizes) {
		t.Errorf("got %d latencies", len(decoded.Latencies))
	}
}

func TestReportSummary(t *testing.T) {
	for want, results := range map[string][]verify.Result{
		"0 rules passed, 0 failed, 0 not applicable\n": nil,
		"1 rule passed, 0 failed, 1 not applicable\n":  {{Outcome: verify.Passed}, {Outcome: verify.NotApplicable}},
		"2 rules passed, 0 failed, 0 not applicable\n": {{Outcome: verify.Passed}, {Outcome: verify.Passed}},
	} {
		if got := text(t, &verify.Report{Results: results}); !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("got:\n%s\nwant %q at the end", got, want)
		}
	}
}

// If nothing responds, the report is about that and nothing else.
func TestReportWithoutResponses(t *testing.T) {
	report, err := verify.Run(t.Context(), verify.Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); report.OK() || !strings.Contains(got, "\n✗ responses ") || strings.Contains(got, "\n– ") || !strings.Contains(got, "connection refused") {
		t.Errorf("got:\n%s", got)
	}
}

// Text from an extender must not control the terminal of the user.
func TestReportIsPrintable(t *testing.T) {
	o := quick(verify.Options{URL: serve(t, &extender{
		filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			*r.NodeNames = append(*r.NodeNames, "\x1b[2Jgone\n✓ fake")
			r.FailedNodes["\x1b]0;title\a"] = "\x1b[31m"
		},
		first: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/filter" {
				return false
			}
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte("\x1b[2J"))
			return true
		},
	})})
	filterNames(&o)
	report := run(t, o)
	written := text(t, report)
	if strings.ContainsAny(written, "\x1b\a") || strings.Contains(written, "\n✓ fake") {
		t.Errorf("%q", written)
	}
	if report.OK() {
		t.Error("OK() is true")
	}
}
