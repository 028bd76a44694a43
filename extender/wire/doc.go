// Package wire reads the arguments of kube-scheduler's filter, prioritize and
// preempt calls and writes the answers, without building the objects in between.
//
// # Why not encoding/json
//
// kube-scheduler waits for the answer, and what it sends is large: the names of
// the nodes at best, all Node objects at worst, 58 MB for 5,000 nodes. To judge
// nodes we need their names, because what is known of them is in the view of the
// cluster, and to answer in nodes mode we need each Node exactly as it came,
// labels of unknown meaning included, because kube-scheduler goes on with what we
// send back. So Decode scans the body once and keeps positions, and the answer is
// spliced from the body's own bytes.
//
// There is one scanner for every sender. It follows the structure of the request
// and therefore takes keys in any order and spelling, white space, and members it
// does not know; kube-scheduler's own output is merely what it is quickest at.
// It needs no memory but the lists of positions, and no stack however deep the
// JSON is nested.
//
// # What Decode accepts
//
// Everything that encoding/json decodes into an ExtenderArgs with a Pod, exactly
// one of Nodes and NodeNames, and at least one node, all of them with names, and
// with the same meaning: keys match in any letter case, which covers the
// lower-case protocol of Kubernetes 1.4 ("pod", "nodes", "nodenames"), null is the
// same as absent, unknown keys are ignored. Three differences:
//
//   - Repeated keys. Of Pod, Nodes, NodeNames and items the last one counts as a
//     whole, where encoding/json would merge the two values element by element.
//     The ones before it have to be in order nevertheless.
//   - Invalid UTF-8 in a name or key that is read is an error, where encoding/json
//     replaces it, so that different names could become equal.
//   - Types are checked as far as Decode reads. That a Pod's spec is an object and
//     not a number is for the one who decodes the Pod to say.
//
// # What Decode checks
//
// Everything outside the Pod and the Node objects is checked to be well-formed
// JSON. Of the Pod and each Node, Decode reads their own members and those of
// their metadata; in the values of the others it counts brackets and looks for
// the ends of strings, no more. If there is something malformed there, the Pod's
// decoder will say so; a malformed Node is sent back as it came, to the one who
// sent it. In other words: put `{"metadata":{…}}` with what Decode found in place
// of the Pod and of every Node, and the request is one encoding/json accepts.
//
// Decode does not look for duplicate names. That takes a table of the nodes,
// which the caller has and this package has not.
//
// Requests are limited to 2 GiB, 2^16 nodes, and 10,000 levels of nesting, the
// limit of encoding/json; names, namespaces, UIDs and versions to the lengths that
// Kubernetes allows ([MaxName] and those beside it). Errors are one line, name the place (as in
// "NodeNames[3]: want a string, have a number at byte 61") and never repeat what
// is inside of a Pod or Node.
//
// # Answers
//
// Answers end with the last byte of the JSON value, without a line end:
// kube-scheduler reuses a connection only if nothing is left on it. They must be
// sent with Content-Length, and with status 200 even if they hold an error,
// because kube-scheduler drops the body of any other.
package wire
