// Package wire decodes the arguments of kube-scheduler's filter, prioritize and preempt calls and
// encodes the responses, without creating the objects in between.
//
// # Why not encoding/json
//
// kube-scheduler waits for the response, and its requests are large: they contain the names of the
// nodes at least, and up to all Node objects, 58 MB for 5,000 nodes. Evaluating nodes only needs
// their names, because their state is in the view of the cluster. A response in Nodes mode must
// return each Node unchanged, including unknown fields, because kube-scheduler continues with these
// objects. So Decode scans the body once and keeps positions, and the response is spliced from the
// bytes of the body.
//
// One scanner serves all senders. It follows the structure of the request, so it accepts keys in
// any order and letter case, white space, and unknown members; it is fastest for kube-scheduler's
// own output. It allocates only the lists of positions, and needs no stack for nested JSON.
//
// # What Decode accepts
//
// Decode accepts everything that encoding/json decodes into an ExtenderArgs with a Pod, exactly one
// of Nodes and NodeNames, and at least one node, all of them with names, and with the same result:
// keys match in any letter case, which includes the lower-case protocol of Kubernetes 1.4 ("pod",
// "nodes", "nodenames"), null is the same as absent, and unknown keys are ignored. There are three
// differences:
//
//   - A second value of Pod, items, or the nodes or victims in either form is an error, and a second
//     null changes nothing. encoding/json would merge the values.
//   - Invalid UTF-8 in a name or key that is read is an error. encoding/json replaces it, so that
//     different names could become equal.
//   - Decode checks types only as far as it reads. The decoder of the Pod checks, for example, that
//     its spec is an object and not a number.
//
// # What Decode checks
//
// Decode checks that everything outside the Pod and the Node objects is valid JSON. Of the Pod and
// each Node, it reads their own members and those of their metadata; in other values it only counts
// brackets and finds the ends of strings. If the JSON there is malformed, decoding the Pod fails
// later, and a malformed Node is sent back unchanged. In other words: if the Pod and every Node are
// replaced with `{"metadata":{…}}` and what Decode read, encoding/json accepts the request.
//
// Decode does not detect duplicate names. The caller does, with its table of the nodes.
//
// Requests are limited to 2 GiB, 2^16 nodes, and 10,000 levels of nesting, the limit of
// encoding/json; names, namespaces, UIDs and versions to the lengths that Kubernetes allows
// ([MaxName] and the constants next to it). Errors are one line, name the position (as in
// "NodeNames[3]: want a string, have a number at byte 61") and never repeat the contents of a Pod
// or Node.
package wire
