package ui

import (
	"time"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/histogram"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/policy/allocations"
)

// No slice in the data is nil, so that each is an array in JSON.

// The paths of the data, below the admin address. Each is a GET request for JSON, except TryPath.
const (
	OverviewPath = "/api/overview" // Overview
	UnitsPath    = "/api/units"    // ?resource=R: Units
	WaitingPath  = "/api/waiting"  // ?find=F&reason=C&owner=O&sort=pods or reason&limit=N: Waiting
	HeldPath     = "/api/held"     // ?resource=R&node=N&find=F&by=namespace or owner: Held
	DevicesPath  = "/api/devices"  // ?node=N: Devices
	NodePath     = "/api/node"     // ?name=N: Node
	FindPath     = "/api/find"     // ?text=T: Found
	SignalsPath  = "/api/signals"  // Signals
	HistoryPath  = "/api/history"  // History
	TryPath      = explain.TryPath // POST of a manifest: explain.Tried

	WaitingPodsPath = "/api/waiting/pods" // a WaitingRow for each pod, to merge those of all replicas
)

// Overview says what runs, and whether it is well.
type Overview struct {
	// Context is the context of the kubeconfig through which several replicas were read; "" from a
	// replica itself.
	Context string `json:"context,omitempty"`
	// Replicas has one entry for each replica, in order of name; those that do not respond have
	// only Name and Error.
	Replicas []Replica `json:"replicas"`
	// Resources are what policies allocate in units, in order of name.
	Resources []Resource `json:"resources"`
	// Profiles are those of all replicas with their calls together, and Over is when those were,
	// except Total: "in the last minute".
	Profiles []Profile `json:"profiles"`
	Over     string    `json:"over"`
	// Troubles are what is not well, by all replicas, and Problem is why there is no data; "" if
	// there is. See Judge.
	Troubles []Trouble `json:"troubles"`
	Problem  string    `json:"problem,omitempty"`
	// Example is a manifest of a pod that requests one of the resources.
	Example string `json:"example"`
}

// Trouble is something that is not well.
type Trouble struct {
	Text string `json:"text"`
	// Incomplete is true if the other data may lack something because of it.
	Incomplete bool `json:"incomplete,omitempty"`
	// Last is when it last happened; zero if it lasts. Remedy is what to do; "" if the text says
	// it.
	Last   time.Time `json:"last,omitzero"`
	Remedy string    `json:"remedy,omitempty"`
}

// Replica is one process of Outboard.
type Replica struct {
	// Name is the name of the pod, or of the host outside a cluster.
	Name string `json:"name"`
	// Error is why the replica did not respond; "" if it did.
	Error   string    `json:"error,omitempty"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// Now is the time at the replica.
	Now time.Time `json:"now,omitzero"`
	// Configuration is a short digest of the configuration in use: replicas with different digests
	// decide differently.
	Configuration string `json:"configuration,omitempty"`
	// Differs is true if most replicas have another configuration.
	Differs bool `json:"differs,omitempty"`
	// Generation is that of the View.
	Generation uint64 `json:"generation"`
	Nodes      int    `json:"nodes"`
	Pods       int    `json:"pods"`
	// Waiting is how many pods wait for a node.
	Waiting      int           `json:"waiting"`
	Checks       []Check       `json:"checks,omitempty"`
	Warnings     []string      `json:"warnings,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	Profiles     []Profile     `json:"profiles,omitempty"`
	// Unserved are the calls that no profile serves. Those that were refused by former certificates
	// do not count.
	Unserved []Unserved `json:"unserved,omitempty"`
	// Seconds is how much of the last minute Profiles count.
	Seconds int `json:"seconds"`
	// Requeues is how often Outboard made kube-scheduler try a pod again.
	Requeues int64 `json:"requeues"`
}

// Unserved are calls for one reason that no profile serves.
type Unserved struct {
	Reason string `json:"reason"` // a key of unserved in troubles.go
	// Calls is how many there were since the start of the replica, Last when the latest one was,
	// and Example its path or its caller.
	Calls   int64     `json:"calls"`
	Last    time.Time `json:"last"`
	Example string    `json:"example"`
}

// Check is one line of /readyz.
type Check struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // "": ready
}

// Certificate is one certificate that the replica uses.
type Certificate struct {
	Use      string    `json:"use"` // such as "serving" and "client CA"
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
	// Renewal is when the certificate should have been replaced.
	Renewal time.Time `json:"renewal"`
	// Left is how long NotAfter is from now, such as "61 days left", and Level is "bad" from
	// Renewal on. See Judge.
	Left  string `json:"left"`
	Level string `json:"level,omitempty"`
}

// Profile is one profile of the configuration, with the calls that it has served.
type Profile struct {
	Path string `json:"path"`
	// Schedulers are those whose pods the calls were about lately.
	Schedulers []string `json:"schedulers"`
	Policies   []Policy `json:"policies"`
	Calls      []Calls  `json:"calls"` // one for each verb that the profile serves
}

// Policy is one policy of a profile.
type Policy struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Weight int64  `json:"weight"`
}

// Calls are those of one verb in the last minute, or since the start.
type Calls struct {
	Verb decision.Verb `json:"verb"`
	// Total is how many calls there were since the start of the replica.
	Total  int64 `json:"total"`
	Calls  int64 `json:"calls"`
	Failed int64 `json:"failed"`
	// Last is when the latest call arrived; zero if there was none, or so long ago that its record
	// is gone.
	Last time.Time `json:"last,omitzero"`
	// Durations counts the calls by duration.
	Durations histogram.Histogram `json:"durations,omitempty"`
	// P50 and P99 are quantiles of the calls of all replicas, such as "1.3 ms"; "" if there are
	// none.
	P50 string `json:"p50,omitempty"`
	P99 string `json:"p99,omitempty"`
}

// History is how numbers of one replica have changed in the last 24 hours, or since its start.
type History struct {
	Replica string `json:"replica"`
	// Seconds lie between two points, and Last is when the latest one began.
	Seconds int       `json:"seconds"`
	Last    time.Time `json:"last"`
	Series  []Series  `json:"series"`
}

// Series is one number, by time. A point is -1 where it is not known.
type Series struct {
	Title  string    `json:"title"`
	Points []float64 `json:"points"`
}

// Resource is something that a policy allocates in units: memory of GPUs, whole devices, seats of
// licenses.
type Resource struct {
	Resource string `json:"resource"`
	// Title is what people call it, such as "GPU memory".
	Title string `json:"title"`
	// Unit is the unit of amounts, such as "GiB"; "" for plain numbers.
	Unit string `json:"unit,omitempty"`
}

// Units are all units of one resource: a table with one column for each field, because a response
// has tens of thousands of units, most of them alike. Runs are pairs of a value and how many times
// it follows.
type Units struct {
	Resource
	// Noun is what people call one unit: "GPU", "unit", or "pool" if it belongs to no node.
	Noun string `json:"noun"`
	// Groups are what units of one kind are shown under, such as models of GPUs.
	Groups []string `json:"groups"`
	// Nodes are the names of the nodes, Group their indexes in Groups as runs, and Count how many
	// units each has as runs. A pool that belongs to no node is shown as one.
	Nodes []string `json:"nodes"`
	Group []int64  `json:"group"`
	Count []int64  `json:"count"`
	// Names has the names of the units of each node, in order of Nodes; those of a node without
	// names are 0, 1, 2, …. Nil: no node has names.
	Names [][]string `json:"names,omitempty"`
	// Used has a number for each unit; the others are runs. Reserved is a part of it.
	Capacity []int64 `json:"capacity"`
	Used     []int64 `json:"used"`
	Reserved []int64 `json:"reserved"`
	Flags    []int64 `json:"flags"`
}

// The flags of a unit.
const (
	Unhealthy = 1 // as its device plugin reports
	Gone      = 2 // the node no longer has the unit, and a pod holds some of it
)

// Node is one node with what is on it.
type Node struct {
	Name string `json:"name"`
	// Status is that of kubectl get nodes, such as "Ready,SchedulingDisabled"; "" if there is no
	// such node. Since and Message are those of its condition Ready.
	Status  string    `json:"status"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message,omitempty"`
	Taints  []string  `json:"taints"` // such as "key=value:NoSchedule"
	// Resources are those of the Overview that the node has, and Signals have a value for it.
	Resources []NodeResource `json:"resources"`
	Signals   []NodeSignal   `json:"signals"`
	// Rows are what its pods hold. A pod that holds nothing has one without a Resource.
	Rows []HeldRow `json:"rows"`
}

// NodeResource are the units of one resource on one node.
type NodeResource struct {
	Units
	// Reported is what the status of the node says of the resource; nil: nothing.
	Reported *Reported `json:"reported,omitempty"`
}

// Reported are amounts in the status of a node. Allocatable is 0 if the device plugin is down.
type Reported struct {
	Capacity    int64 `json:"capacity"`
	Allocatable int64 `json:"allocatable"`
}

// NodeSignal is the value of a signal for one node.
type NodeSignal struct {
	Name  string    `json:"name"`
	Value float64   `json:"value"`
	At    time.Time `json:"at"`
	Stale bool      `json:"stale,omitempty"`
}

// Waiting are the pods that wait for a node, by owner.
type Waiting struct {
	// Pods is how many pods wait, Owners of how many owners, and Shown how many pods the query
	// selects.
	Pods   int `json:"pods"`
	Owners int `json:"owners"`
	Shown  int `json:"shown"`
	// Reasons are why pods wait, the most frequent first, of all pods.
	Reasons []Reason `json:"reasons"`
	// Since is when the one of them began to wait that waits longest; zero if the query selects
	// none.
	Since time.Time `json:"since,omitzero"`
	// Total is how many rows the query selects: the owners, or the pods of the owner in the query.
	// Rows are the first of them in the order of the query, at most as many as it allows.
	Total int          `json:"total"`
	Rows  []WaitingRow `json:"rows"`
}

// Reason is why pods wait.
type Reason struct {
	// Code is that of the rejection with its policy ("GPUMemory.InsufficientMemory"), or one of
	// package pending.
	Code string `json:"code"`
	// Title is the reason in a few words.
	Title string `json:"title"`
	Pods  int    `json:"pods"`
}

// WaitingRow is one owner with its waiting pods, or one pod.
type WaitingRow struct {
	// Owner is the controller of the pods as namespace/kind/name; a pod without one is its own
	// owner.
	Owner string `json:"owner"`
	Pods  int    `json:"pods"`
	// Pod is the one that waits longest, as namespace/name.
	Pod string `json:"pod"`
	// Since is when Outboard first rejected it, or when it was created.
	Since time.Time `json:"since"`
	// Requests are what it requests, such as "cpu: 8".
	Requests []string `json:"requests"`
	Reason   string   `json:"reason"`          // a Code
	Title    string   `json:"title,omitempty"` // of the Reason, in a row of Waiting
	// Text is the text of the reason.
	Text string `json:"text"`
	// Nodes are how many nodes were rejected, of how many kube-scheduler asked about.
	Rejected int `json:"rejected"`
	Nodes    int `json:"nodes"`
	// Nearest is the node that comes closest; nil if that is not known.
	Nearest *decision.Miss `json:"nearest,omitempty"`
	Unit    string         `json:"unit,omitempty"` // of Nearest
	// Requeues is how often Outboard made kube-scheduler try again, and LastCall when
	// kube-scheduler last called.
	Requeues int       `json:"requeues"`
	LastCall time.Time `json:"lastCall,omitzero"`
}

// Held says who holds what, by the ledgers and ResourceClaims, and where the audit finds that
// ledgers and pods disagree.
type Held struct {
	// Audited is when the latest audit ended; zero if none has. Findings are its differences.
	Audited  time.Time     `json:"audited,omitzero"`
	Findings []HeldFinding `json:"findings"`
	// Total is how many rows the query selects; Rows are at most 500 of them.
	Total int       `json:"total"`
	Rows  []HeldRow `json:"rows"`
	// Groups are the sums of all selected rows by namespace or owner, the largest first, at most
	// 500, if the query asks for them. Then there are no Rows.
	Groups []HeldGroup `json:"groups,omitempty"`
}

// HeldFinding is a difference, and what it is about: the text of outboard gpus --audit without the
// kind and the pods.
type HeldFinding struct {
	audit.Finding
	Text string `json:"text"`
}

// HeldGroup is what the pods of one namespace or owner hold of one resource.
type HeldGroup struct {
	// Name is the namespace, or the owner as namespace/kind/name; "" if the pods are gone.
	Name     string `json:"name"`
	Resource string `json:"resource"`
	Pods     int    `json:"pods"`
	Amount   int64  `json:"amount"`
	// Capacity is how much of the resource there is for all.
	Capacity int64 `json:"capacity"`
}

// HeldRow is what one pod holds of one unit.
type HeldRow struct {
	Resource  string `json:"resource"`
	Node      string `json:"node,omitempty"` // "" for a pool
	Unit      string `json:"unit"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Owner     string `json:"owner,omitempty"`
	Amount    int64  `json:"amount"`
	// State is that of the pod: "pending", "bound", "running", "terminating", "ended" or "deleted";
	// or "unknown" if a ResourceClaim has devices and no pod on the node uses it. Then UID is
	// "claim NAME".
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"` // when the pod was bound; zero if that is not known
	// Unallocated is true if the pod is on the node without the allocation that its profile
	// requires, because something else than Outboard bound it. Then Unit is "", and Amount is what
	// the pod requests.
	Unallocated bool `json:"unallocated,omitempty"`
	// Annotations are those of the pod, of the ones that its allocation requires, that name the
	// unit or the amount: "KEY: VALUE", in order. Of a ResourceClaim, which is in no ledger, it is
	// the name.
	Annotations []string `json:"annotations,omitempty"`
	// Audit is what the latest audit says of the allocation, "not audited" of a ResourceClaim, and
	// Differs whether that is wrong.
	Audit   string `json:"audit"`
	Differs bool   `json:"differs,omitempty"`
}

// Devices are the devices of ResourceClaims, with who has them: of Units, those that are in no
// ledger.
type Devices struct {
	// Drivers has one entry for each driver that a policy names.
	Drivers []DriverDevices `json:"drivers"`
	// Error is why the node in the query has none, or "".
	Error string `json:"error,omitempty"`
}

// DriverDevices are the devices of one driver.
type DriverDevices struct {
	Driver string        `json:"driver"`
	Unit   string        `json:"unit"` // of amounts
	Nodes  []NodeDevices `json:"nodes"`
}

// NodeDevices are the devices of one driver on one node.
type NodeDevices struct {
	Name    string   `json:"name"`
	Model   string   `json:"model,omitempty"`
	Devices []Device `json:"devices"`
}

// Device is one device, or the set of counters from which partitions are cut.
type Device struct {
	Name string `json:"name"`
	// Capacity is its memory, and Used how much of that claims have. A device without memory has
	// the capacity 1.
	Capacity int64 `json:"capacity"`
	Used     int64 `json:"used"`
	// Healthy is false if the device has a taint, so that pods do not get it.
	Healthy bool          `json:"healthy"`
	Claims  []DeviceClaim `json:"claims"`
}

// DeviceClaim is what one ResourceClaim has of a device.
type DeviceClaim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pod is a pod on the node that uses the claim; nil if there is none.
	Pod    *allocations.Holder `json:"pod,omitempty"`
	Amount int64               `json:"amount"`
}

// Found are the pods and nodes whose names begin with a text, in order, at most 50 of each. A text
// with a slash is the namespace of pods and the beginning of their names.
type Found struct {
	Pods  []FoundPod `json:"pods"`
	Nodes []string   `json:"nodes"`
	// More is true if there are more of either.
	More bool `json:"more"`
}

// FoundPod is a pod that has not ended.
type FoundPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
}

// Signals are the signals of the configuration.
type Signals struct {
	Signals []Signal `json:"signals"`
}

// Signal is the state of one signal.
type Signal struct {
	explain.Signal
	Oldest time.Time `json:"oldest,omitzero"` // of the values
	// Missing is how many nodes have no value, for signals about nodes.
	Missing int `json:"missing"`
	// Readers are the policies that read the signal.
	Readers []Reader `json:"readers"`
}

// Reader is a policy that reads a signal.
type Reader struct {
	Profile   string `json:"profile"`
	Policy    string `json:"policy"`
	WhenStale string `json:"whenStale,omitempty"`
}
