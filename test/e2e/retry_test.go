package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// A scheduler stops listening at some moment of a bind call for each of many pods, and retries, twice
// more after a success: each pod is bound once, has the GPU of its allocation, and keeps it.
func TestRetriedBindKeepsTheGPU(t *testing.T) {
	th := theater.Open(t)
	const cards, each, podsOfNode = 2, 16, 16
	nodes := 1 + *pods/podsOfNode
	specs := make([]string, nodes)
	for i := range specs {
		specs[i] = fmt.Sprintf("n%d", i)
		th.Nodes(theater.GPUs(specs[i], cards, each))
	}
	o := th.Outboard(theater.GPUShare + "clientConnection: {qps: 1000}\n")
	group, ctx := errgroup.WithContext(th.Ctx)
	group.SetLimit(16)
	for i := range *pods {
		group.Go(func() error {
			spec := theater.GPUPod(fmt.Sprintf("p%04d", i), 1)
			spec.SchedulerName = "nobody"
			pod, err := th.Client.CoreV1().Pods("default").Create(ctx, spec.Pod(), metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return retriedBind(ctx, o, pod, specs[i%nodes])
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	ledgers := th.Ledgers()
	bound, err := th.Client.CoreV1().Pods("default").List(th.Ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for _, p := range bound.Items {
		node, card := p.Spec.NodeName, p.Annotations[GPUIndex]
		used[node+"/"+card]++
		l := ledgers[ledger.Name(snapshot.LedgerKey{Resource: string(theater.GPUMem), Node: node})]
		if l == nil || l.Spec.Unit(card).Amount(p.UID) != 1 || l.Spec.Pod(p.UID).Annotations[GPUIndex] != card {
			t.Errorf("pod %s is on GPU %s of %s, and the ledger differs", p.Name, card, node)
		}
	}
	for card, sum := range used {
		if sum > each {
			t.Errorf("GPU %s is used for %d of %d", card, sum, each)
		}
	}
	if len(bound.Items) != *pods {
		t.Errorf("%d pods", len(bound.Items))
	}
}

// retriedBind binds as a scheduler that loses responses.
func retriedBind(ctx context.Context, o *stage.Outboard, pod *corev1.Pod, node string) error {
	args, err := json.Marshal(extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node})
	if err != nil {
		return err
	}
	bind := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL+"/gpushare-scheduler/bind", bytes.NewReader(args))
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		var result extenderv1.ExtenderBindingResult
		if err := json.Unmarshal(body, &result); err != nil {
			return err
		}
		if result.Error != "" {
			return fmt.Errorf("pod %s: %s", pod.Name, result.Error)
		}
		return nil
	}
	impatient, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(30))*time.Millisecond)
	_ = bind(impatient) // the outcome does not matter
	cancel()
	for successes := 0; successes < 3; {
		if err := bind(ctx); err == nil {
			successes++
		} else if ctx.Err() != nil {
			return err
		} else {
			time.Sleep(10 * time.Millisecond) // the view may not show the pod yet
		}
	}
	return nil
}
