// Package cluster connects Outboard to the Kubernetes API: it turns the API server's nodes, pods
// and disruption budgets into a [snapshot.View], and it is the only writer of Bindings.
//
//	API server ── watch ──► state ──► View ──► requests
//	     ▲                    ▲
//	     └───── Binding ──── Assume, Bind: on its node in the View before they return
//
// # Reading
//
// For each resource, a client-go Reflector writes into the state directly, without the queue and
// the second store of an informer (reflector.go). Every object exists once, shared by the state and
// the Views. Objects are trimmed ([snapshot.TrimPod], [snapshot.TrimNode]); pods made from the same
// template share equal parts, and so do nodes of the same kind. Objects must not be changed. Pods
// that have ended are not watched: a pod that ends counts as deleted.
//
// There is a second way to read, for a Cluster inside another component such as kube-scheduler: the
// informers of that component ([Options.Informers], store.go), so that nodes, pods and
// disruption budgets are not watched and stored twice. A process of its own does not use informers,
// because an informer hides two things that a Reflector shows:
//
//   - Which object a name is. An informer stores objects by name: if a pod is replaced by another one
//     of its name during a gap in the watch, the informer reports an update, and no deletion. A
//     Reflector's store compares UIDs. What reads from informers must compare the UIDs of each update.
//   - When the API server last responded. An informer drops bookmarks, which come while nothing
//     changes. outboard_cluster_last_event_age_seconds, and the alert about it, need them: what is
//     read from informers does not have this metric.
//
// Both ways write into the same state through a store, so that the rest does not know which is
// used.
//
// Views are published off the request path: a single change immediately, and several changes
// together. Until nodes, pods and disruption budgets have all been read, View stays empty, because
// a node whose pods are unknown would look free. If the API server is unreachable, the last View
// stays in use, and the metrics report its age.
//
// A watch that ends is resumed, unless a request has failed meanwhile: then the Reflector lists
// everything again, because the API server may have been restored from an etcd backup. After a
// restore, resourceVersions start again at an older one, and the same resourceVersions get other
// contents.
//
// # Binding
//
// [Cluster.Throttle] waits for the rate limit before the pod's allocations are made, so that its
// Binding does not wait.
//
// [Cluster.Assume] counts a pod on its node in every View from the decision on; package assumption
// has the states of such a pod.
//
// [Cluster.Bind] writes nodeName and annotations in one transaction, for exactly the pod with the
// given UID, and is idempotent. From then on the View has the pod as bound, although the watch
// may show it later: see package assumption.
package cluster
