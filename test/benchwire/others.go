package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// tutorial is the handler of tutorials: it decodes everything, looks at each node, and encodes everything.
func tutorial(w http.ResponseWriter, r *http.Request) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil || args.NodeNames == nil {
		http.Error(w, "want names", http.StatusBadRequest)
		return
	}
	if r.URL.Path == "/prioritize" {
		scores := make(extenderv1.HostPriorityList, 0, len(*args.NodeNames))
		for i, name := range *args.NodeNames {
			scores = append(scores, extenderv1.HostPriority{Host: name, Score: int64(i) % extenderv1.MaxExtenderPriority})
		}
		encode(w, scores)
		return
	}
	names := make([]string, 0, len(*args.NodeNames))
	names = append(names, *args.NodeNames...)
	encode(w, extenderv1.ExtenderFilterResult{NodeNames: &names, FailedNodes: extenderv1.FailedNodesMap{}})
}

// ideal does what no extender on net/http can do without: it reads the body and answers, with the names as they stand in the
// body, and without scores. It knows what the body of kube-scheduler looks like.
func ideal(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := []byte("[]")
	if r.URL.Path == "/filter" {
		at := max(0, bytes.LastIndex(body, listBegin))
		answer = append(append(make([]byte, 0, len(body)-at+1), '{'), body[at:]...)
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer)
}
