package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// call is one recorded filter call.
type call struct {
	body  []byte
	pod   *corev1.Pod
	names []string
}

// readRecording reads filter calls by names, one JSON document on each line.
func readRecording(path string) ([]call, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		return nil, err
	}
	var calls []call
	for _, body := range bytes.Split(bytes.TrimSpace(text), []byte{'\n'}) {
		var args struct {
			Pod       *corev1.Pod
			NodeNames []string
		}
		if err := json.Unmarshal(body, &args); err != nil {
			return nil, fmt.Errorf("call %d: %w", len(calls)+1, err)
		}
		if args.Pod == nil || len(args.NodeNames) == 0 {
			return nil, fmt.Errorf("call %d: has no pod or no names", len(calls)+1)
		}
		calls = append(calls, call{body, args.Pod, args.NodeNames})
	}
	if len(calls) == 0 {
		return nil, errors.New("has no calls")
	}
	return calls, nil
}

var listBegin = []byte(`"NodeNames":`)

// prioritizeBody is the body of the prioritize call that kube-scheduler makes of the answer to a filter call: the same pod, and
// the nodes that the answer names.
func prioritizeBody(filterBody, answer []byte) ([]byte, error) {
	list, err := namesOf(answer)
	if err != nil {
		return nil, err
	}
	at := bytes.LastIndex(filterBody, listBegin) + len(listBegin)
	body := append(make([]byte, 0, len(filterBody)), filterBody[:at]...)
	return append(append(body, list...), '}'), nil
}

// namesOf returns the JSON of the names in the response to a filter call.
func namesOf(answer []byte) ([]byte, error) {
	_, list, found := bytes.Cut(answer, listBegin)
	end := bytes.IndexByte(list, ']')
	if !found || end < 0 {
		return nil, fmt.Errorf("answered %.200s", answer)
	}
	return list[:end+1], nil
}
