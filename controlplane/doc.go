// Package controlplane starts a real Kubernetes control plane on this machine,
// for tests, demonstrations and measurements: etcd, kube-apiserver and any number
// of kube-schedulers, as programs of their own, with TLS and RBAC, on free ports
// of the loopback address. A few seconds after [Start] pods are being scheduled.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{})
//	defer cp.Stop()
//	_, err = cp.StartScheduler(ctx, controlplane.SchedulerOptions{ConfigFile: "scheduler.yaml"})
//	client, err := kubernetes.NewForConfig(cp.AdminConfig())
//	err = controlplane.CreateNodes(ctx, client, controlplane.NodeSpec{Name: "node-1"}.Node())
//
// The programs are compiled once with
//
//	make -C kubernetes
//
// and found in any directory of the checkout. Tests in a module of your own set
// [Options].BinDir. For example, with the programs of envtest, and a kube-scheduler from
// elsewhere:
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{BinDir: os.Getenv("KUBEBUILDER_ASSETS")})
//	_, err = cp.StartScheduler(ctx, controlplane.SchedulerOptions{Path: "/usr/local/bin/kube-scheduler"})
//
// [StartPrometheus] starts a Prometheus server, without a control plane; it is compiled
// with make -C prometheus.
//
// # Nothing is left behind
//
// [ControlPlane.Stop] ends all processes and removes the temporary directory. The
// same happens, within moments, when this process ends without it: after a failed
// test, a panic, os.Exit, Ctrl-C, the timeout of go test, or SIGKILL. A small shell
// process in a session of its own, the reaper, waits for the end of this process
// and then clears up. It learns of each server before that server begins to run.
//
// # What it is not
//
// There is no controller manager and no kubelet. Nodes are objects that somebody
// creates ([NodeSpec]) and pods that are bound stay Pending. What would need these
// components behaves as follows.
//
//   - The admission plugins ServiceAccount and TaintNodesByCondition are off, so pods
//     need no service account and new nodes are not tainted.
//   - A pod that is bound must be deleted without a grace period ([DeletePod]).
//   - Namespaces do not go away, deployments create no pods, and the objects that an
//     object owns outlive it.
//
// etcd does not flush its data to the disk: they survive the end of any process,
// but not that of the machine.
//
// # Identities
//
// [ControlPlane.AdminConfig] is a member of system:masters. kube-scheduler runs as
// system:kube-scheduler with the RBAC roles it has in every cluster, and its own
// endpoints ask the API server who may use them. [ControlPlane.AddUser] adds an
// identity that may do nothing until a RoleBinding says otherwise.
//
// Requests for an APIService are passed on as in any cluster, with a certificate of an
// authority that the ConfigMap extension-apiserver-authentication names. There is no
// network for Services: one of type ExternalName may name localhost.
//
// # The environment
//
// Servers get PATH, HOME and TMPDIR of this process and nothing else, so that a
// proxy or a Go setting meant for other programs does not change them;
// [SchedulerOptions] has a field for variables that they shall have.
//
// # When something is wrong
//
// An error of Start or StartScheduler ends with the last lines that the server
// logged. The whole log is at hand as long as the control plane runs:
//
//	t.Cleanup(func() {
//		if t.Failed() {
//			t.Log(scheduler.Log())
//		}
//		cp.Stop()
//	})
//
// [ControlPlane.StartProcess] runs a program of yours beside, such as an extender,
// with the same care for its log and its end.
//
// With Options.Dir the logs, the configuration as kube-scheduler got it, and
// kubeconfig files stay there afterwards. [Process] has Kill, Pause and Continue
// to see what clients do in an outage.
package controlplane
