// Command cluster starts etcd and kube-apiserver on this machine, kube-scheduler if it is given a configuration, and with -node a real
// node with a kube-scheduler, until it is interrupted. Extenders, such as outboard serve, are for you to run.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/node"
	"outboard.dev/outboard/test/stage"
)

// gpus is the node.
var gpus = controlplane.NodeSpec{Name: "node-1", Labels: map[string]string{
	"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "16384", "nvidia.com/gpu.product": "Tesla-T4",
}}

func main() {
	scheduler := flag.String("scheduler", "", "the configuration of kube-scheduler, which runs only with it or with -node")
	real := flag.Bool("node", false, "run a real node with 8 GPUs that do not exist, in the namespaces of test/node/enter")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *scheduler, *real)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run returns when the context ends, or a server ends by itself, which is an error. It leaves nothing behind.
func run(ctx context.Context, w io.Writer, schedulerFile string, real bool) (err error) {
	var config string
	if schedulerFile != "" {
		data, err := os.ReadFile(schedulerFile)
		if err != nil {
			return err
		}
		if config, err = stage.WithoutCluster(string(data)); err != nil {
			return err
		}
	}
	var options controlplane.Options
	if real {
		options = node.ControlPlane()
		config = cmp.Or(config, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
	}
	cp, err := controlplane.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	servers := []*controlplane.Process{cp.Etcd(), cp.APIServer()}
	if config != "" {
		scheduler, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config})
		if err != nil {
			return err
		}
		servers = append(servers, scheduler.Process)
	}
	enter := ""
	if real {
		root, err := os.Getwd()
		if err != nil {
			return err
		}
		n, err := node.Start(ctx, cp, root, gpus.Node())
		if err != nil {
			return err
		}
		servers = append(servers, n.Processes()...)
		enter = node.Enter()
	}
	ended := make(chan *controlplane.Process, len(servers))
	for _, server := range servers {
		fmt.Fprintf(w, "%s runs\n", server.Name())
		go func() {
			<-server.Done()
			ended <- server
		}()
	}
	fmt.Fprintf(w, `
Everything keeps running until you press Ctrl-C. In another terminal:

%s  export KUBECONFIG='%s'
  '%s' get namespaces

The logs are in %s.
`, enter, cp.Kubeconfig(), cp.KubectlPath(), cp.Dir())
	select {
	case <-ctx.Done():
		return nil
	case server := <-ended:
		log := server.Log()
		return fmt.Errorf("%s ended: %s", server.Name(), log[max(0, len(log)-4<<10):])
	}
}
