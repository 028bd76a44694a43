//go:build chaos

package service

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/binding"
	"outboard.dev/outboard/cluster"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/ledger"
	"outboard.dev/outboard/snapshot"
)

// The environment variables that select the fault.
const (
	// faultVariable is "ACTION POINT COUNT". When the process reaches the point for the COUNTth time, it writes a line to
	// standard error, and is killed ("kill"), or stopped until it gets SIGCONT ("stop").
	faultVariable = "OUTBOARD_CHAOS"
	// unclaimedVariable, if set, makes claims that are in no ledger.
	unclaimedVariable = "OUTBOARD_CHAOS_UNCLAIMED"
)

var (
	fault   = readFault()
	reaches atomic.Int64
)

type faultAt struct {
	signal syscall.Signal
	action string
	point  string
	count  int64
}

func readFault() (f faultAt) {
	text := os.Getenv(faultVariable)
	if text == "" {
		return f
	}
	if _, err := fmt.Sscan(text, &f.action, &f.point, &f.count); err != nil {
		panic(fmt.Sprintf("%s=%q: %v", faultVariable, text, err))
	}
	f.signal = map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}[f.action]
	return f
}

func reach(point string) {
	if point != fault.point || reaches.Add(1) != fault.count {
		return
	}
	fmt.Fprintf(os.Stderr, "chaos: %s %s\n", fault.action, point)
	if err := syscall.Kill(os.Getpid(), fault.signal); err != nil {
		panic(err)
	}
}

// BindingCluster is the cluster that binders use.
type BindingCluster = chaosCluster

func toCluster(c *cluster.Cluster) BindingCluster { return chaosCluster{c} }

type chaosCluster struct{ *cluster.Cluster }

func (c chaosCluster) Bind(ctx context.Context, b binding.Binding) error {
	reach("before-binding")
	err := c.Cluster.Bind(ctx, b)
	reach("after-binding")
	return err
}

func (c chaosCluster) TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	reach("before-touch")
	pod, err := c.Cluster.TouchPod(ctx, namespace, name, uid)
	reach("after-touch")
	return pod, err
}

func toLedgers(l engine.Ledgers) engine.Ledgers { return chaosLedgers{l} }

type chaosLedgers struct{ engine.Ledgers }

func (l chaosLedgers) Claim(ctx context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	if os.Getenv(unclaimedVariable) != "" {
		now := time.Now()
		chosen, err := choose(&snapshot.Ledger{Resource: key.Resource, Node: key.Node}, now)
		return snapshot.LedgerPod{UID: pod.UID, Node: node, At: now, Annotations: chosen.Annotations}, err
	}
	reach("before-claim")
	held, err := l.Ledgers.Claim(ctx, key, pod, node, choose)
	reach("after-claim")
	return held, err
}

func (l chaosLedgers) Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	if os.Getenv(unclaimedVariable) != "" {
		return nil
	}
	reach("before-release")
	err := l.Ledgers.Release(ctx, key, held)
	reach("after-release")
	return err
}

func (l chaosLedgers) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	if os.Getenv(unclaimedVariable) != "" {
		return nil
	}
	reach("before-release")
	err := l.Ledgers.Revoke(ctx, key, held)
	reach("after-release")
	return err
}

func toAPI(a ledger.API) ledger.API { return chaosAPI{a} }

type chaosAPI struct{ ledger.API }

func (a chaosAPI) PutLedger(ctx context.Context, o *ledger.Object) (*ledger.Object, error) {
	reach("before-ledger-write")
	written, err := a.API.PutLedger(ctx, o)
	reach("after-ledger-write")
	return written, err
}

func (a chaosAPI) TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	reach("before-touch")
	pod, err := a.API.TouchPod(ctx, namespace, name, uid)
	reach("after-touch")
	return pod, err
}
