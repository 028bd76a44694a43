// Package node makes a control plane a cluster of one real node. kubelet, containerd and runc run pods, kube-controller-manager creates
// those of Deployments, and kube-proxy, CoreDNS and a CNI plugin connect them by Services. The node has GPUs that do not exist: NVIDIA's
// NRI plugin gives a container those that annotations of its pod name, as device nodes and environment variables.
//
// Everything runs in the namespaces of test/node/enter, and ends with them.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/test/controlplane"
)

// Address is the address of the node and of the API server, for pods, too.
const Address = "10.88.0.1"

// ErrOutside is the error of a start outside of the namespaces.
var ErrOutside = errors.New("a real node needs namespaces of its own: run this command with test/node/enter before it")

// ControlPlane returns the options of a control plane with a node.
func ControlPlane() controlplane.Options {
	return controlplane.Options{Controllers: true, APIServerArgs: []string{
		"--bind-address=0.0.0.0", // of the namespace
		"--advertise-address=" + Address,
		"--endpoint-reconciler-type=lease",
		"--authorization-mode=Node",
		"--kubelet-preferred-address-types=InternalIP",
	}}
}

// Node is a running node.
type Node struct {
	cp        *controlplane.ControlPlane
	client    kubernetes.Interface
	root      string // of the checkout
	object    *corev1.Node
	processes []*controlplane.Process
}

// Start returns when the node is ready. It has the name, labels and annotations of the object, and the extended resources. root is the
// directory of the checkout, where make node builds the programs. The context bounds the start only.
func Start(ctx context.Context, cp *controlplane.ControlPlane, root string, object *corev1.Node) (*Node, error) {
	cgroup := os.Getenv("NODE_CGROUP")
	if cgroup == "" {
		return nil, ErrOutside
	}
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		return nil, err
	}
	n := &Node{cp: cp, client: client, root: root, object: object}
	for path, content := range n.files() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	if err := n.start(ctx, cgroup); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return n, nil
}

// Enter returns a command line with which another terminal reaches the cluster; "" outside of the namespaces.
func Enter() string {
	if pid := os.Getenv("NODE_PID"); pid != "" {
		return "  nsenter --target " + pid + " --net # a shell in the network of the node\n"
	}
	return ""
}

// Processes are the programs of the node.
func (n *Node) Processes() []*controlplane.Process { return n.processes }

// start starts the programs.
func (n *Node) start(ctx context.Context, cgroup string) error {
	if err := n.run("containerd", n.program("containerd"), "--config="+containerdConfig); err != nil {
		return err
	}
	if err := n.await(ctx, "containerd", func() error { return n.ctr(ctx, "version") }); err != nil {
		return err
	}
	if err := n.importOwn(ctx); err != nil {
		return err
	}
	controllers, err := n.cp.AddUser("system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubelet, err := n.cp.AddUser("system:node:"+n.object.Name, "system:nodes")
	if err != nil {
		return err
	}
	proxy, err := n.cp.AddUser("system:kube-proxy")
	if err != nil {
		return err
	}
	if err := controlplane.CreateNodes(ctx, n.client, n.object); err != nil { // kubelet changes it into its own
		return err
	}
	dir := n.cp.Dir()
	if err := errors.Join(
		n.run("kube-controller-manager", n.kubernetes("kube-controller-manager"), "--kubeconfig="+controllers.Kubeconfig,
			"--use-service-account-credentials", "--leader-elect=false", "--secure-port=0", "--root-ca-file="+filepath.Join(dir, "ca.crt"),
			"--service-account-private-key-file="+filepath.Join(dir, "server.key")),
		n.run("kubelet", n.kubernetes("kubelet"), "--config="+kubeletConfig, "--kubeconfig="+kubelet.Kubeconfig, "--hostname-override="+n.object.Name,
			"--node-ip="+Address, "--cgroup-root=/"+cgroup),
		n.run("kube-proxy", n.kubernetes("kube-proxy"), "--kubeconfig="+proxy.Kubeconfig, "--hostname-override="+n.object.Name, "--proxy-mode=nftables",
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"),
		n.run("coredns", n.program("coredns"), "-conf="+corefile),
		n.run("nri-plugin", n.program("nri-plugin")),
	); err != nil {
		return err
	}
	return n.await(ctx, "the node", func() error { return n.ready(ctx) })
}

// ready returns nil if kubelet says that the node is ready, and has all that the object has.
func (n *Node) ready(ctx context.Context) error {
	now, err := n.client.CoreV1().Nodes().Get(ctx, n.object.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if now.Status.NodeInfo.KubeletVersion == "" || len(now.Spec.Taints) > len(n.object.Spec.Taints) {
		return fmt.Errorf("conditions: %v, taints: %v", now.Status.Conditions, now.Spec.Taints)
	}
	missing := false // kubelet sets the amount of a resource of which no device plugin has told it to 0 once
	for name, amount := range n.object.Status.Capacity {
		if is := now.Status.Capacity[name]; strings.Contains(string(name), "/") && is.Cmp(amount) != 0 {
			now.Status.Capacity[name], now.Status.Allocatable[name], missing = amount, n.object.Status.Allocatable[name], true
		}
	}
	if missing {
		_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, now, metav1.UpdateOptions{})
	}
	return err
}

// gpus is how many GPUs the object has.
func (n *Node) gpus() (count int) {
	capacity := n.object.Status.Capacity["aliyun.com/gpu-count"]
	fmt.Sscan(cmp.Or(n.object.Labels["nvidia.com/gpu.count"], capacity.String()), &count)
	return count
}

// Running returns the pod with containers that print which GPUs they have and then sleep.
func Running(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1)) // with 0, the pod is gone before its processes are
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Image, c.Command, c.Args = Busybox, []string{"sh", "-c", `echo I see $(ls /dev | grep nvidia || echo no GPU) $(env | grep -E "^(NVIDIA|CUDA)")
exec sleep 2147483647`}, nil
	}
	return pod
}

// Logs returns what a container of a pod of Running prints, when it has.
func Logs(ctx context.Context, cp *controlplane.ControlPlane, pod *corev1.Pod, container string) (string, error) {
	for {
		out, err := cp.Kubectl(ctx, "logs", "--namespace", pod.Namespace, pod.Name, "--container", container).CombinedOutput()
		if err != nil || len(out) > 0 {
			return string(out), err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// program returns the path of a program of the module in programs/.
func (n *Node) program(name string) string {
	return filepath.Join(n.root, "test", "node", "programs", "bin", name)
}

// searchPath is the environment in which programs find those of the module.
func (n *Node) searchPath() string { return "PATH=" + n.program("") + ":" + os.Getenv("PATH") }

// kubernetes returns the path of a program of Kubernetes.
func (n *Node) kubernetes(name string) string {
	return filepath.Join(n.root, "kubernetes", "bin", name)
}

// run starts a program.
func (n *Node) run(name, path string, args ...string) error {
	p, err := n.cp.StartProcess(controlplane.Command{
		Name: name, Path: path, Args: args, Env: []string{n.searchPath()},
	})
	if err != nil {
		return fmt.Errorf("%w: make node builds it", err)
	}
	n.processes = append(n.processes, p)
	return nil
}

// await polls until ok returns nil.
func (n *Node) await(ctx context.Context, what string, ok func() error) error {
	for {
		err := ok()
		if err == nil {
			return nil
		}
		for _, p := range n.processes {
			select {
			case <-p.Done():
				return fmt.Errorf("%s ended: %s", p.Name(), tail(p.Log()))
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w: %s", what, context.Cause(ctx), err, tail(n.processes[len(n.processes)-1].Log()))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func tail(log string) string { return log[max(0, len(log)-4<<10):] }

// ctr runs a command of containerd on the images and containers of the kubelet.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, n.program("ctr"), append([]string{"--namespace=k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
