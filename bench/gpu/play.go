package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// measurement is the result of an arm in the cluster.
type measurement struct {
	allocated float64 // percent of the GPUs, as the API server has it
	// late is the part of allocated that belongs to pods that were rejected at first.
	late float64
	// first is the sum of the requests up to the first rejected pod with GPUs, in percent.
	first       float64
	anyRejected bool
	bound, pods int
	attempts    attempts
	failures    map[string]int // of calls of Outboard, by why
	skipped     int            // filter calls that kube-scheduler ignored because they failed
	// tried is when every pod had been tried once, and rested when nothing happened any
	// more, from the creation of the first pod on.
	tried, rested time.Duration
	audit         string // the findings; "": none
	// curve is allocated at each of loads, of the pods that had been created by then.
	curve  [len(loads)]float64
	claims *allocations // nil without ResourceClaims
}

// play sets up a control plane for the arm, creates the pods, and measures when all is
// done.
func (o *options) play(ctx context.Context, a *arm, pods []*corev1.Pod, progress io.Writer) (m measurement, err error) {
	s, err := stage.Set(ctx, stage.Options{Outboard: o.binary})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	p := &play{Stage: s, pods: pods, devices: o.devices}
	if err := p.setUp(ctx, o, a); err != nil {
		return m, err
	}
	following, end := context.WithCancel(ctx)
	ended, err := p.follow(following, p.tally.see)
	defer ended()
	defer end()
	if err != nil {
		return m, err
	}
	go p.tell(following, a.name, progress)
	started := time.Now()
	if err := p.create(ctx); err != nil {
		return m, err
	}
	if err := p.await(ctx, p.tried); err != nil {
		return m, err
	}
	m.tried = time.Since(started)
	if err := p.await(ctx, p.atRest()); err != nil {
		return m, err
	}
	m.rested = time.Since(started)
	return m, p.measure(ctx, &m)
}

// play is an arm that is running.
type play struct {
	*stage.Stage
	pods      []*corev1.Pod
	devices   *simulate.Devices // nil unless the pods have ResourceClaims
	tally     *tally
	outboard  *stage.Outboard // nil: kube-scheduler runs alone
	scheduler *controlplane.Scheduler
}

// setUp creates the nodes and starts Outboard and kube-scheduler.
func (p *play) setUp(ctx context.Context, o *options, a *arm) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.pods[0].Namespace}}
	if _, err := p.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	nodes := make([]*corev1.Node, len(o.nodes))
	for i, n := range o.nodes {
		nodes[i] = newNode(n)
		if p.devices != nil {
			nodes[i] = withoutGPUsOf(nodes[i])
		}
	}
	if err := controlplane.CreateNodes(ctx, p.Client, nodes...); err != nil {
		return err
	}
	if p.devices != nil {
		if err := p.createDevices(ctx); err != nil {
			return err
		}
	}
	p.tally = newTally(p.pods, o.world().Capacity())
	config, err := p.startOutboard(ctx, a)
	if err != nil {
		return err
	}
	if o.percentage > 0 {
		config += fmt.Sprintf("percentageOfNodesToScore: %d\n", o.percentage)
	}
	p.scheduler, err = p.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config, Env: []string{"GOGC=600"}}) // a third of its time is garbage collection otherwise
	return err
}

// startOutboard starts Outboard for the arm, and returns the configuration of kube-scheduler with
// it.
func (p *play) startOutboard(ctx context.Context, a *arm) (string, error) {
	scheduler := a.scheduler()
	if a.alone {
		return scheduler, nil
	}
	config, err := a.outboard()
	if err != nil {
		return "", err
	}
	if p.outboard, err = p.StartOutboard(ctx, config); err != nil {
		return "", err
	}
	if a.claims {
		// The entry is the one that users get, except that kube-scheduler waits as long as with the
		// other arms: this machine may be busy.
		entry, err := exec.CommandContext(ctx, p.Binary(), "setup", "scheduler", p.outboard.ConfigFile).Output()
		if err != nil {
			return "", fmt.Errorf("setup scheduler: %w", err)
		}
		_, extenders, _ := strings.Cut(string(entry), "\nextenders:")
		scheduler += "extenders:" + strings.Replace(extenders, "httpTimeout: 1s", "httpTimeout: 10s", 1)
	}
	return p.outboard.SchedulerConfig(scheduler)
}

// follow calls see with each state of the pods until ctx ends; then ended waits for the last call.
func (p *play) follow(ctx context.Context, see func(*corev1.Pod)) (ended func(), err error) {
	factory := informers.NewSharedInformerFactoryWithOptions(p.Client, 0, informers.WithNamespace(p.pods[0].Namespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { see(pod.(*corev1.Pod)) },
		UpdateFunc: func(_, pod any) { see(pod.(*corev1.Pod)) },
	})
	if err != nil {
		return factory.Shutdown, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return factory.Shutdown, context.Cause(ctx)
	}
	return factory.Shutdown, nil
}

// create creates the pods. kube-scheduler tries them in the order in which they come
// into being, so one is created after the other: this is as fast as that goes.
func (p *play) create(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(p.AdminConfig())
	if err != nil {
		return err
	}
	for _, pod := range p.pods {
		pod := newPod(pod)
		if p.devices != nil {
			if pod, err = p.createClaim(ctx, pod); err != nil {
				return fmt.Errorf("creating a claim: %w", err)
			}
		}
		if _, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
		p.tally.create()
	}
	return nil
}

// tellEvery is the time between two lines of progress.
const tellEvery = 5 * time.Second

func (p *play) tell(ctx context.Context, name string, progress io.Writer) {
	started, before := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(tellEvery):
		}
		onNodes, _ := p.tally.progress()
		fmt.Fprintf(progress, "%s: %4.0f s: %s, %.0f bound/s\n", name, time.Since(started).Seconds(), p.tally, float64(onNodes-before)/tellEvery.Seconds())
		before = onNodes
	}
}
