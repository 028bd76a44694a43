// Package controlplane starts a real Kubernetes control plane on this machine,
// for tests, demonstrations and measurements: etcd, kube-apiserver and any number
// of kube-schedulers, as separate processes, with TLS and RBAC, on free ports of the
// loopback address. A few seconds after [Start], pods can be scheduled.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{})
//	defer cp.Stop()
//	_, err = cp.StartScheduler(ctx, controlplane.SchedulerOptions{})
//	client, err := kubernetes.NewForConfig(cp.AdminConfig())
//	err = controlplane.CreateNodes(ctx, client, controlplane.NodeSpec{Name: "node-1"}.Node())
//
// The programs are compiled once with
//
//	make -C kubernetes
//
// and found from any directory of the checkout. The variable KUBEBUILDER_ASSETS or
// [Options].BinDir names another directory, such as that of envtest, which lacks
// kube-scheduler only: it is taken from the checkout (make -C kubernetes
// bin/kube-scheduler). To run another kube-scheduler, name it:
//
//	_, err = cp.StartScheduler(ctx, controlplane.SchedulerOptions{Path: "/usr/local/bin/kube-scheduler"})
//
// [StartPrometheus] starts a Prometheus server without a control plane. make -C test/prometheus
// compiles it.
//
// # Cleanup
//
// [ControlPlane.Stop] ends all processes and removes the temporary directory. The
// same happens, within moments, when this process ends without a call of Stop: after a
// failed test, a panic, os.Exit, Ctrl-C, the timeout of go test, or SIGKILL. A small
// shell process in its own session, the reaper, waits for the end of this process and
// then cleans up. It knows each server before that server starts to run.
//
// # Many tests on one control plane
//
// [ControlPlane.Restore] returns to a checkpoint within a fraction of a second, whatever a test has created,
// changed or deleted. A start takes some seconds. So tests can use one control plane one after the other:
//
//	checkpoint, err := cp.Checkpoint(ctx) // once, after Start
//
//	t.Cleanup(func() { // in each test
//		if err := cp.Restore(context.Background(), checkpoint); err != nil { // t.Context() has ended
//			t.Error(err)
//		}
//	})
//
// Restore also ends the processes that the test has started.
//
// # Limits
//
// There is no controller manager and no kubelet. Nodes are objects that the caller
// creates ([NodeSpec]), and bound pods stay Pending. This has the following
// consequences:
//
//   - The admission plugins ServiceAccount and TaintNodesByCondition are off, so pods
//     need no service account and new nodes are not tainted.
//   - A pod that is bound must be deleted without a grace period ([DeletePod]).
//   - Namespaces are never deleted completely, Deployments create no pods, and dependent
//     objects outlive their owners.
//
// etcd does not flush its data to the disk: the data survive the end of any process,
// but not a crash of the machine.
//
// # Identities
//
// [ControlPlane.AdminConfig] is a member of system:masters. kube-scheduler runs as
// system:kube-scheduler with the RBAC roles it has in every cluster, and its own
// endpoints delegate authorization to the API server. [ControlPlane.AddUser] adds an
// identity that has no permissions until a RoleBinding grants some.
//
// The API server proxies requests for an APIService as in any cluster, with a
// certificate of the authority in the ConfigMap extension-apiserver-authentication.
// There is no network for Services: a Service of type ExternalName can name localhost.
//
// # The environment
//
// Servers get only PATH, HOME and TMPDIR of this process, so that a proxy or a Go
// setting for other programs does not affect them. [SchedulerOptions] has a field for
// further variables.
//
// # Debugging
//
// An error of Start or StartScheduler ends with the last lines of the server's log.
// The whole log is available while the control plane runs:
//
//	t.Cleanup(func() {
//		if t.Failed() {
//			t.Log(scheduler.Log())
//		}
//		cp.Stop()
//	})
//
// [ControlPlane.StartProcess] also runs your own program, such as an extender, keeps its
// log, and ends it.
//
// [Process] has Kill, Pause and Continue to test clients during an outage.
package controlplane
