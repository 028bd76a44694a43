package pages

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// The variables from which the test binary, started as kubectl, knows the real kubectl and the
// outboard that the test runs.
const (
	realKubectl   = "DOCS_KUBECTL"
	outboardPath  = "DOCS_OUTBOARD"
	outboardAdmin = "DOCS_ADMIN"
	outboardLog   = "DOCS_LOG"
)

// TestMain makes the test binary kubectl if it is started by that name. No kubelet runs in the
// test, so no container runs, and the API server can neither execute commands in one nor forward
// its ports. For `kubectl exec`, `port-forward` and `logs`, the test binary checks with the real
// kubectl that the object exists, and then uses the outboard that the test runs. For `kubectl
// rollout status`, it first reports in the status of the Deployment, as the Deployment controller
// would, that all replicas are updated. Before `kubectl apply -k`, it deletes Jobs, as their
// controller does when they have ended. Everything else is the real kubectl. Started as outboard,
// it is the real outboard, but the commands that read from all replicas read from the outboard that
// the test runs: a test in test/nightly has a kubelet that forwards ports. Started as the plugin of
// kubectl, it is the real outboard. Started as sleep, it sleeps for a second: the documented pauses
// wait for kubelets, which do not run here, but kubectl refuses to restart a Deployment twice in
// the same second.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "sleep":
		time.Sleep(time.Second)
		return
	case "kubectl":
		if err := kubectl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "kubectl of the test:", err)
			os.Exit(1)
		}
		return
	case "kubectl-outboard", "kubectl_complete-outboard":
		fmt.Fprintln(os.Stderr, syscall.Exec(os.Getenv(outboardPath), os.Args, os.Environ()))
		os.Exit(2)
	case "outboard":
		if err := execute(append([]string{"/outboard"}, os.Args[1:]...)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	os.Exit(m.Run())
}

func kubectl(args []string) error {
	flags, inside := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		flags, inside = args[:i], args[i+1:]
	}
	i := slices.IndexFunc(flags, func(arg string) bool { return slices.Contains([]string{"exec", "port-forward", "logs"}, arg) })
	if i < 0 {
		if i := slices.Index(flags, "rollout"); i >= 0 && len(flags) > i+1 && flags[i+1] == "status" {
			if err := rollOut(slices.Delete(slices.Clone(flags), i, i+2)); err != nil {
				return err
			}
		}
		if slices.Contains(flags, "apply") && slices.Contains(flags, "-k") {
			if out, err := exec.Command(os.Getenv(realKubectl), "delete", "jobs", "--all", "--namespace", "outboard-system").CombinedOutput(); err != nil {
				return fmt.Errorf("deleting Jobs: %w: %s", err, out)
			}
		}
		return syscall.Exec(os.Getenv(realKubectl), append([]string{"kubectl"}, args...), os.Environ())
	}
	verb := flags[i]
	get := slices.Delete(slices.Clone(flags), i, i+1)
	var ports string
	if last := len(get) - 1; verb == "port-forward" {
		ports, get = get[last], get[:last]
	}
	get = slices.DeleteFunc(get, func(arg string) bool { return arg == "--stdin" || strings.HasPrefix(arg, "--tail=") })
	if out, err := exec.Command(os.Getenv(realKubectl), append([]string{"get", "-o", "name"}, get...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", verb, err, out)
	}
	switch verb {
	case "exec":
		return execute(inside)
	case "logs":
		text, err := os.ReadFile(os.Getenv(outboardLog))
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	default:
		return forward(ports)
	}
}

// rollOut completes the rollout of the Deployment that the arguments name.
func rollOut(deployment []string) error {
	out, err := exec.Command(os.Getenv(realKubectl), append([]string{"get", "-o", "json"}, deployment...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("rollout: %w: %s", err, out)
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(out, &d); err != nil {
		return fmt.Errorf("rollout: %w", err)
	}
	n := *d.Spec.Replicas
	status, err := json.Marshal(map[string]any{"status": appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
	}})
	if err != nil {
		return err
	}
	patch := append([]string{"patch", "--subresource=status", "--type=merge", "--patch", string(status)}, deployment...)
	if out, err := exec.Command(os.Getenv(realKubectl), patch...).CombinedOutput(); err != nil {
		return fmt.Errorf("rollout: %w: %s", err, out)
	}
	return nil
}

// execute becomes a command of the container, so that a signal for this process reaches the
// command.
func execute(command []string) error {
	if len(command) == 0 || command[0] != "/outboard" {
		return fmt.Errorf("exec: the container has no command %q", command)
	}
	args := command[1:]
	named := slices.Contains(args, "--admin") || slices.Contains(args, "--audit") // an outboard that the page starts, or the API server
	if !named && len(args) > 0 && slices.Contains([]string{"explain", "gpus"}, args[0]) {
		args = append(args, "--admin", os.Getenv(outboardAdmin))
	}
	return syscall.Exec(os.Getenv(outboardPath), append([]string{"outboard"}, args...), os.Environ())
}

// forward accepts connections on the first of the ports LOCAL:REMOTE, and connects them to the
// admin address.
func forward(ports string) error {
	local, remote, _ := strings.Cut(ports, ":")
	if remote != "8081" {
		return fmt.Errorf("port-forward: %s: only port 8081 of outboard is known", ports)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+local)
	if err != nil {
		return err
	}
	fmt.Printf("Forwarding from 127.0.0.1:%s -> %s\n", local, remote)
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", strings.TrimPrefix(os.Getenv(outboardAdmin), "http://"))
		if err != nil {
			return err
		}
		go pass(client, server)
		go pass(server, client)
	}
}

// pass copies until one side closes. The error is that of a closed connection.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
