package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/snapshot"
)

// TryPath is the path of explanations of pods that do not exist.
const TryPath = "/api/try"

// maxManifest bounds the manifest of a pod.
const maxManifest = 256 << 10

// templates are the kinds of workloads, and where they have the template of their pods.
var templates = map[string]string{
	"Deployment": "spec.template", "ReplicaSet": "spec.template", "StatefulSet": "spec.template", "DaemonSet": "spec.template", "Job": "spec.template",
	"CronJob": "spec.jobTemplate.spec.template",
}

// TryHandler serves POST requests with the manifest of a pod, or of a workload with a template, and the query parameters profile and nodes.
// It responds with the [Document] of a pod that does not exist. The manifest, which may have secrets, is neither kept nor logged, and
// browsers can send it only from a page of the same address.
func TryHandler(s Source) http.Handler {
	evaluator := newEvaluator(s)
	evaluator.kept = nil // a manifest may have secrets
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			http.Error(w, "only this page may send a manifest", http.StatusForbidden)
			return
		}
		switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
		case "application/yaml", "application/json": // which other pages cannot send without being asked about
		default:
			http.Error(w, "the Content-Type must be application/yaml or application/json", http.StatusUnsupportedMediaType)
			return
		}
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxManifest))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			http.Error(w, fmt.Sprintf("the manifest is larger than %d bytes", maxManifest), http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			http.Error(w, "reading the manifest: "+err.Error(), http.StatusBadRequest)
			return
		}
		nodes, err := limit(r.URL.Query().Get("nodes"), DefaultNodes)
		if err != nil {
			http.Error(w, "nodes: "+err.Error(), http.StatusBadRequest)
			return
		}
		engines, profile := s.Engines(), r.URL.Query().Get("profile")
		if _, ok := engines[profile]; !ok && profile != "" {
			http.Error(w, fmt.Sprintf("there is no profile %q", profile), http.StatusNotFound)
			return
		}
		pod, err := podIn(data)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if s.View == nil {
			http.Error(w, "Outboard runs without a cluster: clientConnection.enabled is false", http.StatusConflict)
			return
		}
		doc := Document{Pod: pod.Namespace + "/" + pod.Name, Tried: true, Known: true, Decisions: []*decision.Record{}}
		if err := evaluator.add(r.Context(), &doc, engines, pod, question{profile: profile, nodes: nodes}); err != nil {
			http.Error(w, "the request has ended: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		doc.Verdict = doc.verdict()
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(doc)
	})
}

// podIn returns the pod of a manifest as the API server would make it: not bound, and without a UID.
func podIn(data []byte) (*corev1.Pod, error) {
	root, err := strictyaml.Parse("manifest", data)
	if err != nil {
		return nil, err
	}
	var head struct {
		Kind string `json:"kind"`
	}
	_ = root.Decode(&head) // the other fields are unknown here
	pod := new(corev1.Pod)
	if head.Kind == "Pod" {
		err = root.Decode(pod)
	} else if at, ok := templates[head.Kind]; ok {
		var meta metav1.ObjectMeta
		var template corev1.PodTemplateSpec
		err = errors.Join(root.At("metadata").Decode(&meta), root.At(at).Decode(&template))
		pod.ObjectMeta, pod.Spec = template.ObjectMeta, template.Spec
		pod.Name, pod.Namespace = meta.Name, meta.Namespace
	} else {
		kinds := []string{"Pod"}
		for kind := range templates {
			kinds = append(kinds, kind)
		}
		slices.Sort(kinds)
		return nil, fmt.Errorf("manifest: kind is %q: must be one of %s", head.Kind, strings.Join(kinds, ", "))
	}
	if err != nil {
		return nil, err
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, errors.New("manifest: the pod has no containers")
	}
	pod.Namespace, pod.Name = cmp.Or(pod.Namespace, "default"), cmp.Or(pod.Name, pod.GenerateName, "pod")
	pod.UID, pod.ResourceVersion, pod.Spec.NodeName, pod.Status = "", "", "", corev1.PodStatus{}
	pod.Spec.SchedulerName = cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	snapshot.DefaultRequests(pod)
	snapshot.TrimPod(pod)
	return pod, nil
}
