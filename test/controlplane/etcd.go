package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
)

// maxRequests is how many requests to etcd are under way at a time.
const maxRequests = 8

// keyValue is an object as etcd stores it.
type keyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value,omitempty"`
}

// maintained are the labels of objects that kube-apiserver creates, renews and deletes itself: its own Lease, and the APIServices of kinds
// that it serves. In any encoding, an object contains its labels as they are.
var maintained = [][]byte{[]byte("apiserver.kubernetes.io/identity"), []byte("kube-aggregator.kubernetes.io/automanaged")}

// stored returns what etcd stores, by key, without what kube-apiserver maintains itself.
func (cp *ControlPlane) stored(ctx context.Context) (map[string][]byte, error) {
	request := map[string][]byte{"key": []byte("/registry/"), "range_end": []byte("/registry0")} // 0 follows /
	var response struct{ Kvs []keyValue }
	if err := cp.callEtcd(ctx, "range", request, &response); err != nil {
		return nil, err
	}
	objects := make(map[string][]byte, len(response.Kvs))
	for _, kv := range response.Kvs {
		if !slices.ContainsFunc(maintained, func(label []byte) bool { return bytes.Contains(kv.Value, label) }) {
			objects[string(kv.Key)] = kv.Value
		}
	}
	return objects, nil
}

// callEtcd calls a method of the key-value service through etcd's JSON gateway.
func (cp *ControlPlane) callEtcd(ctx context.Context, method string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := do(cp.etcdClient, req)
	if err == nil && response != nil {
		err = json.Unmarshal(answer, response)
	}
	return err
}

// dialEtcd connects to etcd's socket, whose whole name may be too long for a socket.
func (cp *ControlPlane) dialEtcd(ctx context.Context, _, _ string) (net.Conn, error) {
	dir, err := os.Open(cp.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), etcdSocket))
}

// discovery returns the document about all kinds that the API server serves.
func (cp *ControlPlane) discovery(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cp.apiPort.url()+"/apis", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	return do(cp.client, req)
}

// do sends the request and returns the body of a response with 200; the error has any other response.
func do(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", req.URL, errNotFound)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s: %.2048s", req.URL, resp.Status, body)
	}
	return body, nil
}
