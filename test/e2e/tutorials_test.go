package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

const tutorials = "../../examples/from-the-tutorials"

// tutorialTests are what the tests of a folder check in addition to the results in its README.
var tutorialTests = map[string]func(*theater.Theater, *stage.Play){
	"course":      courseCounts,
	"image-score": imageScoreResponds,
	"gpushare":    gpushareAnnotates,
	"gotchas":     gotchasDoNotPreempt,
	"design-1.4":  designResponds,
}

// Each pod of each document is where the README says.
func TestTutorials(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob(filepath.Join(tutorials, "*", "README.md"))
	if err != nil || len(folders) != len(tutorialTests) {
		t.Fatalf("the folders are %q: %v", folders, err)
	}
	for _, readme := range folders {
		name := filepath.Base(filepath.Dir(readme))
		t.Run(name, func(t *testing.T) {
			th := theater.Open(t)
			text, err := os.ReadFile(readme)
			if err != nil {
				t.Fatal(err)
			}
			results, err := stage.ReadResults(string(text))
			if err != nil {
				t.Fatal(err)
			}
			play := th.PlayExample("from-the-tutorials/" + name)
			if len(play.Example.Pods) != len(results) {
				t.Errorf("there are %d pods, and %d results in the README", len(play.Example.Pods), len(results))
			}
			for _, pod := range play.Example.Pods {
				placed, err := th.Place(th.Ctx, pod)
				if err != nil {
					t.Fatal(err)
				}
				if err := results[pod.Name].Check(placed); err != nil {
					t.Error(err)
				}
			}
			tutorialTests[name](th, play)
		})
	}
}

// neverCalled fails the test if Outboard has got a call for the pod.
func neverCalled(th *theater.Theater, o *stage.Outboard, pod string) {
	th.T.Helper()
	if n := len(th.Explain(o, pod).Decisions); n > 0 {
		th.T.Errorf("Outboard has got %d calls for %s", n, pod)
	}
}

// postJSON sends a request as kube-scheduler does and returns the response.
func postJSON(th *theater.Theater, url string, request any) string {
	th.T.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		th.T.Fatal(err)
	}
	res, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		th.T.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		th.T.Fatalf("%s: %v\n%s", res.Status, err, text)
	}
	return strings.TrimSpace(string(text))
}

// arguments are those of a call with whole nodes about a new pod with the image.
func arguments(th *theater.Theater, image string) extenderv1.ExtenderArgs {
	th.T.Helper()
	nodes, err := th.Client.CoreV1().Nodes().List(th.Ctx, metav1.ListOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	pod := controlplane.PodSpec{Name: "another", Image: image}.Pod()
	return extenderv1.ExtenderArgs{Pod: pod, Nodes: nodes}
}

// The course's file is used as it is, and no GPU is allocated twice.
func courseCounts(th *theater.Theater, play *stage.Play) {
	neverCalled(th, play.Outboard, "plain")
	th.Audited()
	original, err := os.ReadFile(filepath.Join(tutorials, "course", "original", "scheduler.yaml"))
	if err != nil {
		th.T.Fatal(err)
	}
	if play.Example.Scheduler != string(original) {
		th.T.Errorf("scheduler.yaml differs from the original")
	}
	for _, pod := range []string{"g1", "g2"} {
		if decisions := th.Explain(play.Outboard, pod).Decisions; len(decisions) == 0 || decisions[0].Verb != "bind" {
			th.T.Errorf("%s is not bound by Outboard: %+v", pod, decisions)
		}
	}
}

// The tutorial's extender responds with 0, 0 and 1 for its three nodes. Outboard responds with 0, 0
// and 10, as the README shows.
func imageScoreResponds(th *theater.Theater, play *stage.Play) {
	url := play.Outboard.URL + "/my_scheduler_extension/my_new_priorities/image_score"
	got := postJSON(th, url, arguments(th, "nginx:1.7.9"))
	readme, err := os.ReadFile(filepath.Join(tutorials, "image-score", "README.md"))
	if err != nil {
		th.T.Fatal(err)
	}
	if !strings.Contains(string(readme), "\n"+got+"\n") {
		th.T.Errorf("the README does not contain the response %s", got)
	}
	var list extenderv1.HostPriorityList
	if err := json.Unmarshal([]byte(got), &list); err != nil {
		th.T.Fatal(err)
	}
	if want := (extenderv1.HostPriorityList{{Host: "worker-node2", Score: 10}}); !slices.Equal(list, want) {
		th.T.Errorf("the response is %v, want %v", list, want)
	}
	for _, pod := range []string{"pod-nginx-ext-scheduler1", "pod-nginx-ext-scheduler2"} {
		decisions := th.Explain(play.Outboard, pod).Decisions
		if len(decisions) != 1 || decisions[0].Verb != "prioritize" {
			th.T.Errorf("the calls about %s are %+v, want one of prioritize", pod, decisions)
		}
	}
	neverCalled(th, play.Outboard, "assigned-pod")
}

// Each pod has the GPU that the README names.
func gpushareAnnotates(th *theater.Theater, play *stage.Play) {
	for pod, gpu := range map[string]string{"binpack-1": "0", "binpack-2": "0", "binpack-3": "1"} {
		p, err := th.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(th.Ctx, pod, metav1.GetOptions{})
		if err != nil {
			th.T.Fatal(err)
		}
		if got := p.Annotations[GPUIndex]; got != gpu {
			th.T.Errorf("%s has GPU %q, want %s", pod, got, gpu)
		}
	}
	neverCalled(th, play.Outboard, "plain")
	th.Audited()
}

// A pod with a high priority waits, too: kube-scheduler does not call preempt for a resource that
// it ignores.
func gotchasDoNotPreempt(th *theater.Theater, play *stage.Play) {
	neverCalled(th, play.Outboard, "plain")
	th.Audited()
	th.Priority("urgent", 1000)
	waits := th.Placed(controlplane.PodSpec{Name: "urgent", PriorityClass: "urgent", Resources: map[string]string{"example.com/gpu": "2"}})
	if want := "preemption: expected at least one victim pod on node"; !strings.Contains(waits.Waiting, want) {
		th.T.Errorf("urgent is on %q, waiting because of %q, want %q", waits.Pod.Spec.NodeName, waits.Waiting, want)
	}
	if calls := th.Metric(play.Outboard, `outboard_request_duration_seconds_count{outcome="success",profile="/",verb="preempt"} `); calls != "" {
		th.T.Errorf("preempt was called %s times", calls)
	}
}

// The document's keys and later ones get the same response.
func designResponds(th *theater.Theater, play *stage.Play) {
	url, args := play.Outboard.URL+"/api/scheduler/filter", arguments(th, "main")
	later := postJSON(th, url, args)
	first := postJSON(th, url, struct {
		Pod   *corev1.Pod      `json:"pod"`
		Nodes *corev1.NodeList `json:"nodes"`
	}{args.Pod, args.Nodes})
	var result extenderv1.ExtenderFilterResult
	if err := json.Unmarshal([]byte(later), &result); err != nil {
		th.T.Fatal(err)
	}
	if first != later || result.Nodes == nil || len(result.Nodes.Items) != 1 || result.Nodes.Items[0].Name != "node-2" {
		th.T.Errorf("the responses are\n%s\nand\n%s", first, later)
	}
}
