package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
)

const (
	nodes = 5000
	pods  = 30000
)

func nodeName(i int) string { return fmt.Sprintf("node-%05d.eu-central-1.compute.internal", i%nodes) }

// The sizes up to which Outboard keeps pods and nodes as they are, less what they have in any case.
const (
	largePod  = 7 << 10
	largeNode = 20 << 10
)

// serveCluster serves the watches of Outboard for a cluster that does not change. Its pods and
// nodes have an annotation of this many bytes.
func serveCluster(podText, nodeText int) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			watchCluster(w, r, podText, nodeText)
		}))
	}() // until the listener is closed
	return l, nil
}

type object = map[string]any

func watchCluster(w http.ResponseWriter, r *http.Request, podText, nodeText int) {
	if r.URL.Query().Get("watch") == "" {
		http.Error(w, "only watches", http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	events := json.NewEncoder(w)
	send := func(kind string, o object, text int) {
		if metadata, ok := o["metadata"].(object); ok && text > 0 {
			metadata["annotations"] = object{"text": fmt.Sprint(metadata["name"], strings.Repeat("x", text))} // no two are equal
		}
		_ = events.Encode(object{"type": kind, "object": o}) // the watcher may be gone
	}
	version, kind := "v1", ""
	if r.URL.Query().Get("sendInitialEvents") != "" {
		switch r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] {
		case "nodes":
			kind = "Node"
			for i := range nodes {
				send("ADDED", node(i), nodeText)
			}
		case "pods":
			kind = "Pod"
			for i := range pods {
				send("ADDED", pod(i), podText)
			}
		case "poddisruptionbudgets":
			version, kind = "policy/v1", "PodDisruptionBudget"
		}
		send("BOOKMARK", object{"apiVersion": version, "kind": kind, "metadata": object{
			"resourceVersion": "1000000", "annotations": object{"k8s.io/initial-events-end": "true"},
		}}, 0)
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func node(i int) object {
	var images []object
	for k := range 50 {
		images = append(images, object{"names": []string{fmt.Sprintf("registry.example.com/team/service-%d:1.2.%d", k, i%7)}, "sizeBytes": (100 + k) << 20})
	}
	return object{"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": nodeName(i), "uid": fmt.Sprintf("node-uid-%d", i), "resourceVersion": fmt.Sprint(1 + i), "labels": object{
			"kubernetes.io/hostname": nodeName(i), "topology.kubernetes.io/zone": fmt.Sprint("zone-", i%3),
		}},
		"status": object{"images": images, "allocatable": object{"cpu": "16", "memory": "64Gi", "pods": "110"}},
	}
}

func pod(i int) object {
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": "default", "name": fmt.Sprintf("service-%d-%05x", i%1500, i), "uid": fmt.Sprintf("pod-uid-%d", i),
			"resourceVersion": fmt.Sprint(10000 + i), "labels": object{"app": fmt.Sprint("service-", i%1500)}},
		"spec": object{"nodeName": nodeName(i), "containers": []object{{
			"name": "main", "image": fmt.Sprintf("registry.example.com/team/service-%d:1.2.3", i%50),
			"resources": object{"requests": object{"cpu": "500m", "memory": "512Mi"}},
		}}},
		"status": object{"phase": "Running"},
	}
}
