// Package shares has a test of what containers on a real node get of its GPUs.
package shares

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/node"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

func TestMain(m *testing.M) { theater.Main(m) }

// patience bounds the test: much longer than it takes on a slow machine.
const patience = 60 * time.Minute

// The node has these GPUs, by all agents.
const (
	count = 8
	size  = 16 << 10 // MiB
)

// agents are the node agents, by the value of nodeAgent. Each changes a pod so that it requests GPUs, and each container this much of each
// of them, in MiB.
var agents = map[string]func(pod *corev1.Pod, gpus, mib int){
	"ContainerToolkit": annotated,
	"GPUFractioning":   annotated,
	"GPUShare":         gpuShare,
}

// gpuShare is for pods with one container and one GPU.
func gpuShare(pod *corev1.Pod, _, mib int) {
	c := &pod.Spec.Containers[0]
	c.Resources = controlplane.PodSpec{Resources: map[string]string{"aliyun.com/gpu-mem": strconv.Itoa(mib)}}.Pod().Spec.Containers[0].Resources
}

// annotated is for all pods.
func annotated(pod *corev1.Pod, gpus, mib int) {
	pod.Annotations = map[string]string{"outboard.dev/gpus": strconv.Itoa(gpus)}
	for _, c := range pod.Spec.Containers {
		pod.Annotations["nvidia.com/container."+c.Name+".gpu-memory.request"] = fmt.Sprintf("%dMi", mib)
	}
}

// play is a running Outboard for an agent, and an unmodified kube-scheduler.
type play struct {
	*theater.Theater
	outboard *stage.Outboard
	request  func(pod *corev1.Pod, gpus, mib int)
}

func TestShares(t *testing.T) {
	th := theater.OpenWith(t, node.ControlPlane())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	th.Ctx = ctx
	spec := controlplane.NodeSpec{
		Name:      "node-1",
		Labels:    map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": strconv.Itoa(count), "nvidia.com/gpu.memory": strconv.Itoa(size)},
		Resources: map[string]string{"aliyun.com/gpu-count": strconv.Itoa(count), "aliyun.com/gpu-mem": strconv.Itoa(count * size)},
	}
	if _, err := node.Start(ctx, th.ControlPlane, th.Root, spec.Node()); err != nil {
		t.Fatal(err)
	}
	condition := []byte(`{"status": {"conditions": [{"type": "gpu-fractioning.nvidia.com/Ready", "status": "True"}]}}`)
	if _, err := th.Client.CoreV1().Nodes().Patch(ctx, spec.Name, types.StrategicMergePatchType, condition, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	for _, agent := range slices.Sorted(maps.Keys(agents)) {
		t.Run(agent, func(t *testing.T) {
			unit := ""
			if agent == "GPUShare" {
				unit = ", unit: MiB"
			}
			p := play{Theater: th.ForTest(t), request: agents[agent]}
			p.outboard = p.Outboard(theater.OutboardHeader + "serving: {insecure: true}\nprofiles:\n- policies:\n  - type: GPUMemory\n    config: {nodeAgent: " + agent + unit + "}\n")
			s := p.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: p.outboard, Verbs: "filter prioritize preempt bind"}))
			p.seeTheLedger(agent)
			if agent == "ContainerToolkit" { // whose agent is NVIDIA's own
				p.neverOverfull()
			}
			s.Kill()
			p.outboard.Kill()
		})
	}
}

// pod returns a pod that runs, whose containers each request a part of each GPU.
func (p *play) pod(name string, containers, gpus, mib int) *corev1.Pod {
	pod := controlplane.PodSpec{Name: name}.Pod()
	for i := range containers - 1 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("more-", i)})
	}
	p.request(pod, gpus, mib)
	return node.Running(pod)
}

// seeTheLedger expects in each container of several pods the GPUs of the ledger, and no others, and of the agent that limits memory the
// limit. One agent is NVIDIA's NRI plugin; the others are imitated.
func (p *play) seeTheLedger(agent string) {
	p.T.Helper()
	for _, tt := range []struct{ containers, gpus, mib int }{{1, 1, 4 << 10}, {1, 1, 12 << 10}, {1, 1, 6 << 10}, {1, 2, 3 << 10}, {2, 1, 5 << 10}, {3, 2, 2 << 10}, {2, 2, 8 << 10}} {
		if agent == "GPUShare" && tt.containers*tt.gpus > 1 {
			continue
		}
		pod := p.run(p.pod(fmt.Sprintf("with-%d-of-%d-gpus-%d", tt.containers, tt.gpus, tt.mib), tt.containers, tt.gpus, tt.mib))
		var want []string
		for _, l := range p.Ledgers() {
			for _, unit := range l.Spec.Units {
				for _, a := range unit.Allocations {
					if a.Pod == pod.UID {
						want = append(want, "nvidia"+unit.Name)
					}
					if a.Pod == pod.UID && int(a.Amount) != tt.mib*tt.containers {
						p.T.Errorf("%s has %d MiB of GPU %s", pod.Name, a.Amount, unit.Name)
					}
				}
			}
		}
		if len(want) != tt.gpus {
			p.T.Errorf("%s has the GPUs %v", pod.Name, want)
		}
		for _, c := range pod.Spec.Containers {
			out, err := node.Logs(p.Ctx, p.ControlPlane, pod, c.Name)
			got := slices.DeleteFunc(strings.Fields(out), func(word string) bool { return !strings.HasPrefix(word, "nvidia") })
			limited := strings.Contains(out, fmt.Sprintf("NVIDIA_GPU_MEMORY_LIMIT=%d", tt.mib))
			p.T.Logf("%s/%s has %v, and prints: %s", pod.Name, c.Name, want, out)
			if err != nil || !slices.Equal(got, want) || limited != (agent == "GPUFractioning") {
				p.T.Errorf("%s/%s has %v, and prints: %s: %v", pod.Name, c.Name, want, out, err)
			}
		}
	}
	p.clear()
}

// run creates the pod and returns it when it runs.
func (p *play) run(pod *corev1.Pod) *corev1.Pod {
	p.T.Helper()
	created, err := p.Client.CoreV1().Pods(pod.Namespace).Create(p.Ctx, pod, metav1.CreateOptions{})
	if err != nil {
		p.T.Fatal(err)
	}
	pod, err = controlplane.WaitForPod(p.Ctx, p.Client, created, func(p *corev1.Pod) (bool, error) { return p.Status.Phase == corev1.PodRunning, nil })
	if err != nil {
		p.T.Fatal(err)
	}
	return pod
}

// clear deletes all pods, and waits until they are gone.
func (p *play) clear() {
	p.T.Helper()
	if out, err := p.Kubectl(p.Ctx, "delete", "pods", "--all", "--wait").CombinedOutput(); err != nil {
		p.T.Fatalf("%v: %s", err, out)
	}
}

// neverOverfull runs 200 pods, of which some end and some are deleted, and kills Outboard ten times meanwhile. All the time, it expects
// that the processes on the node have no more of a GPU than its size.
func (p *play) neverOverfull() {
	p.T.Helper()
	const pods, kills, atOnce = 200, 10, 40
	ctx, stop := context.WithCancel(p.Ctx)
	defer stop()
	judged := make(chan judgment)
	go func() { judged <- judge(ctx) }()
	random := rand.New(rand.NewPCG(1, 2))
	created, ended := 0, 0
	for ended < pods {
		list, err := p.Client.CoreV1().Pods(metav1.NamespaceDefault).List(p.Ctx, metav1.ListOptions{})
		if err != nil {
			p.T.Fatal(err)
		}
		alive := len(list.Items)
		for i := range list.Items {
			pod := &list.Items[i]
			running := pod.Status.Phase == corev1.PodRunning && random.IntN(20) == 0
			if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodSucceeded && !running {
				continue
			}
			if err := p.Client.CoreV1().Pods(pod.Namespace).Delete(p.Ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				p.T.Fatal(err)
			}
			if ended++; ended%(pods/kills) == 0 {
				p.outboard.Kill()
				if err := p.outboard.Start(p.Ctx); err != nil {
					p.T.Fatal(err)
				}
			}
		}
		for ; created < pods && alive < atOnce; alive++ {
			mib := (1 + random.IntN(size>>10)) << 10
			pod := p.pod(fmt.Sprint("short-", created), 1, 1, mib)
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			c := &pod.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: share, Value: strconv.Itoa(mib)})
			c.Command = []string{"sleep", strconv.Itoa(1 + random.IntN(5))}
			if _, err := p.Client.CoreV1().Pods(pod.Namespace).Create(p.Ctx, pod, metav1.CreateOptions{}); err != nil {
				p.T.Fatal(err)
			}
			created++
		}
		select {
		case <-p.Ctx.Done():
			p.T.Fatal(context.Cause(p.Ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
	stop()
	j := <-judged
	p.T.Logf("%d looks saw %d pods, up to %d on a GPU at once, which had up to %d of %d MiB", j.looks, len(j.pods), j.together, j.most, size)
	if j.most > size {
		p.T.Errorf("a GPU of %d MiB had containers with %d MiB", size, j.most)
	}
	if len(j.pods) < pods/2 || j.together < 2 || j.most < size/2 {
		p.T.Errorf("too few pods: %+v", j)
	}
	p.clear()
}

// share is the variable with the part that a container may use of each of its GPUs.
const share = "SHARE_MIB"

// judgment is what the processes on the node have.
type judgment struct {
	looks          int
	pods           map[string]bool // seen, by name
	together, most int             // on one GPU: containers, MiB
}

// judge looks at the processes on the node until the context ends.
func judge(ctx context.Context) judgment {
	j := judgment{pods: map[string]bool{}}
	for ; ctx.Err() == nil; j.looks++ {
		j.look()
		time.Sleep(20 * time.Millisecond)
	}
	return j
}

// look reads the environment of each process twice: what it sees both times was there all at once, between the two.
func (j *judgment) look() {
	first := processes()
	together, sum := map[string]int{}, map[string]int{}
	for process, environment := range processes() {
		if first[process] != environment {
			continue
		}
		mib, pod, names := 0, "", []string(nil)
		for variable := range strings.SplitSeq(environment, "\x00") {
			name, value, _ := strings.Cut(variable, "=")
			if name == share {
				mib, _ = strconv.Atoi(value)
			}
			if name == "HOSTNAME" {
				pod = value
			}
			if strings.HasPrefix(name, node.Injected) {
				names = append(names, name)
			}
		}
		for _, gpu := range names {
			together[gpu]++
			sum[gpu] += mib
			j.pods[pod] = true
		}
	}
	for gpu := range sum {
		j.together, j.most = max(j.together, together[gpu]), max(j.most, sum[gpu])
	}
}

// processes returns the environments of the processes to which the runtime has given a GPU.
func processes() map[string]string {
	found := map[string]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if environment, err := os.ReadFile(file); err == nil && bytes.Contains(environment, []byte(node.Injected)) { // or it has ended
			found[file] = string(environment)
		}
	}
	return found
}
