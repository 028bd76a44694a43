// Package baseline holds what benchmarks compare Outboard with: two other extenders.
package baseline

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Tutorial is a handler as in tutorials: it decodes everything, evaluates each node, and encodes
// everything. It supports calls with names and calls with nodes.
func Tutorial(w http.ResponseWriter, r *http.Request) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil || args.NodeNames == nil && args.Nodes == nil {
		http.Error(w, "want names or nodes", http.StatusBadRequest)
		return
	}
	if r.URL.Path == "/prioritize" {
		encode(w, tutorialScores(args))
		return
	}
	result := extenderv1.ExtenderFilterResult{FailedNodes: extenderv1.FailedNodesMap{}}
	if args.NodeNames != nil {
		names := make([]string, 0, len(*args.NodeNames))
		names = append(names, *args.NodeNames...)
		result.NodeNames = &names
	} else {
		result.Nodes = &corev1.NodeList{Items: slices.Clone(args.Nodes.Items)}
	}
	encode(w, result)
}

func tutorialScores(args extenderv1.ExtenderArgs) extenderv1.HostPriorityList {
	var scores extenderv1.HostPriorityList
	add := func(i int, name string) {
		scores = append(scores, extenderv1.HostPriority{Host: name, Score: int64(i) % extenderv1.MaxExtenderPriority})
	}
	if args.NodeNames != nil {
		for i, name := range *args.NodeNames {
			add(i, name)
		}
		return scores
	}
	for i := range args.Nodes.Items {
		add(i, args.Nodes.Items[i].Name)
	}
	return scores
}

// encode responds as handlers in tutorials do.
func encode(w http.ResponseWriter, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

var listBegin = []byte(`"NodeNames":[`)

// Ideal returns a handler that does only what every extender on net/http must do: it reads the body
// and responds, with the first shortlist names as they are in the body (0: with all of them), and
// without scores. It relies on the form of kube-scheduler's body, with names and the names last.
func Ideal(shortlist int) http.HandlerFunc {
	return idealHandler(shortlist, func([]byte) []byte { return []byte("[]") })
}

// IdealScores returns a handler like Ideal(0) that also scores four of five nodes, and omits the others, which kube-scheduler
// counts as 0.
func IdealScores() http.HandlerFunc { return idealHandler(0, scoreNames) }

func idealHandler(shortlist int, score func(list []byte) []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, max(0, r.ContentLength))
		if _, err := io.ReadFull(r.Body, body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		at := bytes.LastIndex(body, listBegin)
		if at < 0 {
			http.Error(w, "want names", http.StatusBadRequest)
			return
		}
		var answer []byte
		if r.URL.Path == "/prioritize" {
			answer = score(body[at+len(listBegin):])
		} else {
			list := firstNames(body[at:], shortlist)
			answer = append(append(make([]byte, 0, len(list)+len("{]}")), '{'), list...)
			if shortlist > 0 {
				answer = append(answer, "]}"...)
			}
		}
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}
}

// scoreNames returns scores for the names in a list, which ends with "]".
func scoreNames(list []byte) []byte {
	answer := append(make([]byte, 0, 3*len(list)), '[')
	list = list[:max(0, bytes.IndexByte(list, ']'))]
	for i, name := range bytes.Split(list, []byte(",")) {
		if i%5 == 0 || len(name) == 0 {
			continue
		}
		if len(answer) > 1 {
			answer = append(answer, ',')
		}
		answer = append(append(answer, `{"Host":`...), name...)
		answer = append(strconv.AppendInt(append(answer, `,"Score":`...), int64(i)%extenderv1.MaxExtenderPriority, 10), '}')
	}
	return append(answer, ']')
}

// firstNames returns the beginning of a list of names, before the comma or bracket after the first n; all of it if n is 0.
func firstNames(list []byte, n int) []byte {
	if n == 0 {
		return list
	}
	end := len(listBegin)
	for range n {
		comma := bytes.IndexByte(list[end:], ',')
		if comma < 0 {
			return list[:bytes.IndexByte(list, ']')]
		}
		end += comma + 1
	}
	return list[:end-1]
}
