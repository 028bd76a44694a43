package equality

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// api is the API of a world behind an http.RoundTripper, as far as Outboard and kube-scheduler use it for nodes, pods, ledgers
// and ConfigMaps. It has no other resources.
type api struct {
	mu       sync.Mutex
	version  int
	objects  map[string]map[string]metav1.Object // by collection and key
	events   []event
	watchers map[*watcher]bool
	bindings map[string]*corev1.Binding // by key of the pod
	sources  map[string]metav1.Object   // the objects whose copies are stored, by collection and key
}

// event is a change of an object, in a watch.
type event struct {
	version    int
	collection string
	text       []byte
}

// watcher is an open watch.
type watcher struct {
	collection string
	send       chan []byte
}

const (
	nodesAPI      = "/api/v1/nodes"
	podsAPI       = "/api/v1/pods"
	configMapsAPI = "/api/v1/namespaces/kube-system/configmaps"
)

var ledgersAPI = "/apis/" + ledger.GroupVersion.String() + "/" + ledger.Resource.Resource

func newAPI() *api {
	return &api{objects: map[string]map[string]metav1.Object{}, watchers: map[*watcher]bool{}, bindings: map[string]*corev1.Binding{}, sources: map[string]metav1.Object{}}
}

// config is the configuration of its clients.
func (a *api) config() *rest.Config {
	return &rest.Config{Host: "http://api.invalid", Transport: a, QPS: -1}
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// set stores the object, which must not change afterwards, and notifies the watchers. The kind is the object's.
func (a *api) set(collection string, o metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.objects[collection][keyOf(o)]; old == nil || !same(old, o) {
		a.put(collection, o)
	}
}

// same reports whether the objects are the same, except for the fields that the API adds.
func same(a, b metav1.Object) bool {
	if l, ok := a.(*ledger.Object); ok {
		return reflect.DeepEqual(l.Spec, b.(*ledger.Object).Spec)
	}
	version := b.GetResourceVersion()
	defer func() { b.SetResourceVersion(version) }()
	b.SetResourceVersion(a.GetResourceVersion())
	return reflect.DeepEqual(a, b)
}

func (a *api) put(collection string, o metav1.Object) {
	all := a.objects[collection]
	if all == nil {
		all = map[string]metav1.Object{}
		a.objects[collection] = all
	}
	kind := "MODIFIED"
	if all[keyOf(o)] == nil {
		kind = "ADDED"
	}
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	all[keyOf(o)] = o
	a.tell(collection, kind, o)
}

// keep removes all objects that are not in the map, by collection and key.
func (a *api) keep(collection string, names map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.objects[collection] {
		if !names[collection+key] {
			a.drop(collection, key)
		}
	}
}

func (a *api) drop(collection, key string) {
	o := a.objects[collection][key].(runtime.Object).DeepCopyObject().(metav1.Object)
	delete(a.objects[collection], key)
	delete(a.sources, collection+key)
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.tell(collection, "DELETED", o)
}

func (a *api) tell(collection, kind string, o metav1.Object) {
	text := append(encode(map[string]any{"type": kind, "object": o}), '\n')
	a.events = append(a.events, event{a.version, collection, text})
	for w := range a.watchers {
		if w.collection == collection {
			w.send <- text
		}
	}
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of API objects
	}
	return text
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") == "true":
		return a.watch(r), nil
	case r.Method == http.MethodGet:
		return a.get(r, path), nil
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/binding"):
		return a.bind(r), nil
	case strings.HasPrefix(path, ledgersAPI) && (r.Method == http.MethodPost || r.Method == http.MethodPut):
		return a.putLedger(r), nil
	}
	return answer(r, http.StatusMethodNotAllowed, failure(http.StatusMethodNotAllowed, r.Method+" "+path)), nil
}

func failure(code int32, message string) any {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Message: message,
		Reason: map[int32]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict}[code],
	}
}

func answer(r *http.Request, code int, v any) *http.Response {
	return respond(r, code, io.NopCloser(strings.NewReader(string(encode(v)))))
}

func respond(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: body, ContentLength: -1, Header: http.Header{
		"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)},
	}}
}

// get responds with a list, or with one object.
func (a *api) get(r *http.Request, path string) *http.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	if collection, key, one := split(path); one {
		if o := a.objects[collection][key]; o != nil {
			return answer(r, http.StatusOK, o)
		}
		return answer(r, http.StatusNotFound, failure(http.StatusNotFound, path))
	}
	items := []metav1.Object{}
	for _, o := range a.objects[path] {
		items = append(items, o)
	}
	return answer(r, http.StatusOK, map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)}, "items": items})
}

// split splits the path of one object.
func split(path string) (collection, key string, one bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/namespaces/"), "/")
	switch {
	case strings.HasPrefix(path, ledgersAPI+"/"):
		return ledgersAPI, "/" + strings.TrimPrefix(path, ledgersAPI+"/"), true
	case strings.HasPrefix(path, "/api/v1/namespaces/") && len(parts) == 3 && parts[1] == "pods":
		return podsAPI, parts[0] + "/" + parts[2], true
	}
	return "", "", false
}

// watch sends the changes since the version in the request, and changes from now on.
func (a *api) watch(r *http.Request) *http.Response {
	if r.URL.Query().Get("sendInitialEvents") != "" { // clients list instead
		return answer(r, http.StatusUnprocessableEntity, &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		})
	}
	w := &watcher{r.URL.Path, make(chan []byte, 1024)}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	a.mu.Lock()
	for _, e := range a.events {
		if e.version > since && e.collection == w.collection {
			w.send <- e.text
		}
	}
	a.watchers[w] = true
	a.mu.Unlock()
	reader, writer := io.Pipe()
	go func() {
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.watchers, w)
			writer.Close()
		}()
		for {
			select {
			case <-r.Context().Done():
				return
			case text := <-w.send:
				if _, err := writer.Write(text); err != nil {
					return
				}
			}
		}
	}()
	return respond(r, http.StatusOK, reader)
}

// bind records the Binding, and changes nothing: the world applies its effects.
func (a *api) bind(r *http.Request) *http.Response {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return answer(r, http.StatusBadRequest, failure(http.StatusBadRequest, err.Error()))
	}
	binding := new(corev1.Binding)
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, binding); err != nil {
		return answer(r, http.StatusBadRequest, failure(http.StatusBadRequest, err.Error()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	a.bindings[parts[0]+"/"+parts[2]] = binding
	return answer(r, http.StatusCreated, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

// binding is the latest Binding of the pod.
func (a *api) binding(pod string) *corev1.Binding {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bindings[pod]
}

func (a *api) putLedger(r *http.Request) *http.Response {
	o := new(ledger.Object)
	if err := json.NewDecoder(r.Body).Decode(o); err != nil {
		return answer(r, http.StatusBadRequest, failure(http.StatusBadRequest, err.Error()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var known string
	if old := a.objects[ledgersAPI][keyOf(o)]; old != nil {
		known = old.GetResourceVersion()
	}
	if o.ResourceVersion != known {
		return answer(r, http.StatusConflict, failure(http.StatusConflict, fmt.Sprintf("the version is %q", known)))
	}
	a.put(ledgersAPI, o)
	return answer(r, http.StatusOK, o)
}

// The following functions write the parts of a world.

// stored reports whether the object is stored already, and records that it will be.
func (a *api) stored(collection string, o metav1.Object) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.sources[collection+keyOf(o)] == o
	a.sources[collection+keyOf(o)] = o
	return known
}

func (a *api) setNode(node *corev1.Node) {
	if a.stored(nodesAPI, node) {
		return
	}
	node = node.DeepCopy()
	node.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
	a.set(nodesAPI, node)
}

func (a *api) setPod(pod *corev1.Pod) {
	if a.stored(podsAPI, pod) {
		return
	}
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	a.set(podsAPI, pod)
}

func (a *api) setUnhealthy(node string, data map[string]string) {
	a.set(configMapsAPI, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: unhealthyGPUs.Namespace, Name: unhealthyGPUs.Prefix + node}, Data: data,
	})
}

func (a *api) setLedger(l snapshot.Ledger) {
	o := &ledger.Object{Spec: l}
	o.Name, o.TypeMeta = ledger.Name(l.Key()), metav1.TypeMeta{Kind: ledger.Kind.Kind, APIVersion: ledger.GroupVersion.String()}
	a.set(ledgersAPI, o)
}

// ledgers are the ledgers that are stored.
func (a *api) ledgers() []snapshot.Ledger {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []snapshot.Ledger
	for _, o := range a.objects[ledgersAPI] {
		all = append(all, o.(*ledger.Object).Spec)
	}
	slices.SortFunc(all, func(x, y snapshot.Ledger) int { return compare(x.Resource+"\x00"+x.Node, y.Resource+"\x00"+y.Node) })
	return all
}
