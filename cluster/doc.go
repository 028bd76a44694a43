// Package cluster is Outboard's side of the Kubernetes API: it turns what the API
// server says about nodes, pods and disruption budgets into a [snapshot.View],
// and it is the one writer of Bindings.
//
//	API server ── watch ──► state ──► View ──► requests
//	     ▲                    ▲
//	     └───── Binding ──── Bind: on its node in the View before Bind returns
//
// # Reading
//
// Each resource is followed by a client-go Reflector that writes into the state
// directly, without the queue and second store of an informer: every object
// exists once, shared by the state and the Views, trimmed ([snapshot.TrimPod],
// [snapshot.TrimNode]), and pods made from the same template share the parts
// they have in common, as do machines of one kind. Objects must not be written
// to. Pods that have ended are not watched; one that ends is gone.
//
// Changes are published as Views off the request path: a single one at once, many
// together. Until nodes, pods and disruption budgets have all been read, View
// stays empty, because a node whose pods are not known yet looks free. When the
// API server is away, the last View stays, and the metrics tell its age.
//
// A watch that ends is resumed where it ended, unless a request has failed in the
// meantime: then everything is read anew, because the API server may have come
// back with another past. After an etcd restore resourceVersions begin again at an
// older one, and what they stood for is no longer so.
//
// # Binding
//
// [Cluster.Throttle] waits for the limit of requests, before anything is claimed for
// the pod, so that its Binding does not.
//
// [Cluster.Bind] writes nodeName and annotations in one transaction, for exactly
// the pod with the given UID, and is idempotent. From then on the pod is counted
// on its node, although the watch may show it later. The rules for such a pod:
//
//   - The watch shows it bound: that version replaces ours.
//   - The watch shows it deleted or ended: it is gone.
//   - The watch shows it without a node: that is from before the Binding, and
//     ignored. (nodeName, once set, is never unset while a pod lives.)
//   - The watch does not show it bound for [Options.ConfirmAfter]: the API server
//     is asked for the pod, and what it says holds. This is how a Binding that an
//     etcd restore has undone is found.
//
// # Permissions
//
// The service account needs these, and what the options named below take:
//
//	rules:
//	- {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
//	- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
//	- {apiGroups: [""], resources: [pods/binding], verbs: [create]}
//	- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
//	- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [list, watch]}
//
// pods/binding is needed only where Bind is used, and pods/status where RetryPod or TouchPod
// are. [Options.Ledgers] takes get, list, watch, create, update and delete on ledgers of
// outboard.dev, and [Options.ConfigMaps] list and watch on configmaps in their namespaces.
//
// # Memory
//
// 5,000 nodes with 50 images each and 30,000 pods take less than 120 MiB of heap, a
// third of it for the Pod structs alone; see BenchmarkMemory.
package cluster
