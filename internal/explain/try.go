package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/config/manifest"
	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/snapshot"
)

// TryPath is the path of explanations of pods that do not exist.
const TryPath = "/api/try"

// maxManifest bounds the manifest of a pod.
const maxManifest = 256 << 10

// maxTried bounds the pods of a manifest.
const maxTried = 20

// Tried is what a manifest has: the explanation of each pod by itself, the objects without one, as
// KIND/NAME, and why other objects are refused.
type Tried struct {
	Pods    []*Document `json:"pods"`
	Skipped []string    `json:"skipped,omitempty"`
	Refused []string    `json:"refused,omitempty"`
}

// Fits reports whether each pod would be placed.
func (t *Tried) Fits() bool {
	return len(t.Pods) > 0 && len(t.Refused) == 0 && !slices.ContainsFunc(t.Pods, func(d *Document) bool {
		return d.Fits == nil || d.Fits.Fit == 0 || d.Reason != nil
	})
}

// Text writes the explanations as text. The error is that of w.
func (t *Tried) Text(w io.Writer) error {
	if len(t.Skipped) > 0 {
		fmt.Fprintf(w, "Without a pod: %s.\n\n", strings.Join(t.Skipped, ", "))
	}
	for _, why := range t.Refused {
		fmt.Fprintf(w, "%s\n\n", decision.Plain(why))
	}
	for i, d := range t.Pods {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := d.Text(w); err != nil {
			return err
		}
	}
	return nil
}

// TryHandler serves POST requests with a manifest of pods, or of objects with templates of pods,
// and the query parameter nodes. It responds with [Tried]. The manifest, which may have secrets, is
// neither kept nor logged, and browsers can send it only from a page of the same address.
func TryHandler(s Source) http.Handler {
	evaluator := newEvaluator(s)
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
		pods, tried, err := podsIn(data)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if s.View == nil {
			http.Error(w, "Outboard runs without a cluster: clientConnection.enabled is false", http.StatusConflict)
			return
		}
		for _, pod := range pods {
			doc := &Document{Kind: pod.Kind, Pod: pod.Namespace + "/" + pod.Name, Tried: true, Known: true, Decisions: []*decision.Record{}}
			if err := evaluator.add(r.Context(), doc, pod, question{nodes: nodes}); err != nil {
				http.Error(w, "the request has ended: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
			if s.Reason != nil {
				if r, _ := s.Reason(s.View(""), pod); r.Code == pending.OtherScheduler {
					doc.Reason = &r
				}
			}
			doc.Verdict = doc.verdict()
			tried.Pods = append(tried.Pods, doc)
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(tried)
	})
}

// podsIn returns the pods of a manifest as the API server would make them, not bound, without a
// UID, and with the Kind of the object that has their template, and what it has without them.
func podsIn(data []byte) (pods []*corev1.Pod, others Tried, err error) {
	refuse := func(err error) { others.Refused = append(others.Refused, err.Error()) }
	file := manifest.Text{Data: data}
	for _, document := range file.Documents() {
		above := strings.Repeat("\n", document.Line(0)) // so that errors have the lines of the file
		root, err := strictyaml.Parse("manifest", append([]byte(above), document.Data...))
		var object map[string]any
		if err == nil {
			err = root.Decode(&object)
		}
		if err != nil {
			refuse(err)
			continue
		}
		all, ok := object["items"].([]any)
		if !ok {
			all = []any{object}
		}
		for i := range all {
			at, object := root, all[i]
			if ok {
				at = root.At(fmt.Sprintf("items[%d]", i))
			}
			found, name, err := podsOf(at, object)
			switch {
			case err != nil:
				refuse(err)
			case len(found) == 0:
				others.Skipped = append(others.Skipped, name)
			default:
				pods = append(pods, found...)
			}
		}
	}
	switch {
	case len(pods) == 0 && len(others.Refused) > 0:
		err = errors.New(strings.Join(others.Refused, "\n"))
	case len(pods) == 0:
		err = fmt.Errorf("manifest: there is no pod, and no object with a template of pods (%s)", strings.Join(others.Skipped, ", "))
	case len(pods) > maxTried:
		err = fmt.Errorf("manifest: there are %d pods: at most %d are possible", len(pods), maxTried)
	}
	return pods, others, err
}

// podsOf returns the pods of an object, and its kind and name.
func podsOf(root strictyaml.Value, object any) (pods []*corev1.Pod, name string, err error) {
	var head struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	_ = root.Decode(&head) // the other fields are unknown here
	if head.Kind == "Pod" {
		pods = append(pods, new(corev1.Pod))
		err = root.Decode(pods[0])
	}
	for _, at := range templates("", object) {
		var template corev1.PodTemplateSpec
		err = errors.Join(err, root.At(at).Decode(&template))
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name, pod.Namespace = head.Metadata.Name, head.Metadata.Namespace
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		if err == nil && len(pod.Spec.Containers) == 0 {
			err = errors.New("manifest: the pod has no containers")
		}
		pod.Namespace, pod.Name = cmp.Or(pod.Namespace, "default"), cmp.Or(pod.Name, pod.GenerateName, "pod")
		pod.UID, pod.ResourceVersion, pod.Spec.NodeName = "", "", ""
		pod.Status = corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled}}} // its scheduler would try it
		pod.Spec.SchedulerName = cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
		err = cmp.Or(err, refused(pod))
		snapshot.DefaultRequests(pod)
		snapshot.TrimPod(pod)
		pod.Kind = head.Kind
	}
	return pods, head.Kind + "/" + head.Metadata.Name, err
}

// templates returns the paths of the templates of pods in an object of any kind.
func templates(at string, value any) (paths []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			path := strings.TrimPrefix(at+"."+key, ".")
			template, _ := value[key].(map[string]any)
			if spec, _ := template["spec"].(map[string]any); key == "template" && spec["containers"] != nil {
				paths = append(paths, path)
			} else {
				paths = append(paths, templates(path, value[key])...)
			}
		}
	case []any:
		for i := range value {
			paths = append(paths, templates(fmt.Sprintf("%s[%d]", at, i), value[i])...)
		}
	}
	return paths
}
