package main

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
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
	for _, rule := range rules {
		if rule.ID == "" || seen[rule.ID] || rule.Statement == "" || rule.Consequence == "" || rule.Severity == "" {
			t.Errorf("got rule %+v", rule)
		}
		if !tested[rule.ID] {
			t.Errorf("no test violates %s", rule.ID)
		}
		seen[rule.ID] = true
	}
}

func TestReportInText(t *testing.T) {
	o := quick(Options{
		URL: strings.Replace(serve(t, scored(func(s *extenderv1.HostPriorityList) { add(s, 90) })()), "http://", "http://user:password@", 1),
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2"}}}},
		}},
	})
	prioritize(&o)
	report := mustRun(t, o)
	written := text(t, report)
	for _, want := range []string{
		"✗ score-range ", "✓ score-once ", "– subset ", "(filter is not checked)",
		"✗ score-range (error): scores are between 0 and 10\n    sent  POST prioritize: 10 nodes, names mode\n    got   200 OK, ",
		"which is not between 0 and 10", "In kube-scheduler: Scores are not clamped", "(failed: 1 error, 1 warning, 0 note)",
	} {
		if !strings.Contains(written, want) {
			t.Errorf("the text has no %q:\n%s", want, written)
		}
	}
	for _, secret := range []string{"hunter2", "password"} {
		if strings.Contains(written, secret) {
			t.Errorf("the report shows %q", secret)
		}
	}
}

// Text from an extender must not control the terminal of the user.
func TestReportIsPrintable(t *testing.T) {
	o := quick(Options{URL: serve(t, &extender{
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
	report := mustRun(t, o)
	written := text(t, report)
	if strings.ContainsAny(written, "\x1b\a") || strings.Contains(written, "\n✓ fake") {
		t.Errorf("%q", written)
	}
	if report.OK() {
		t.Error("OK() is true")
	}
}
