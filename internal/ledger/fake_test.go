package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// errLost is a client's error for a lost response.
var errLost = errors.New("connection lost")

// fault is what happens to one write request.
type fault int

const (
	none       fault = iota
	lostBefore       // the request does not reach the server
	lostAfter        // the request reaches the server, and the response is lost
	delayed          // the request reaches the server later, and the response is lost
	twice            // the request reaches the server now, and once more later
)

// server is an API server with Ledgers and pods.
type server struct {
	mu      sync.Mutex
	version int
	ledgers map[string]*ledger.Object
	pods    map[types.UID]*corev1.Pod
	late    []func() // writes in flight
	faults  []fault  // of the next writes; then none
	puts    int
	limit   int64         // if not 0, the largest allocation that the server accepts
	block   chan struct{} // if not nil, writes wait for it
}

func newServer() *server {
	return &server{ledgers: map[string]*ledger.Object{}, pods: map[types.UID]*corev1.Pod{}}
}

func (s *server) next() string {
	s.version++
	return strconv.Itoa(s.version)
}

func notFound(name string) error {
	return apierrors.NewNotFound(ledger.Resource.GroupResource(), name)
}

func (s *server) GetLedger(_ context.Context, name string) (*ledger.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.ledgers[name]; o != nil {
		return o.DeepCopyObject().(*ledger.Object), nil
	}
	return nil, notFound(name)
}

func (s *server) PutLedger(ctx context.Context, o *ledger.Object) (*ledger.Object, error) {
	if s.block != nil {
		<-s.block
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	o = o.DeepCopyObject().(*ledger.Object)
	f := none
	if len(s.faults) > 0 {
		f, s.faults = s.faults[0], s.faults[1:]
	}
	if err := ctx.Err(); err != nil {
		f = lostBefore
	}
	switch f {
	case lostBefore:
		return nil, errLost
	case delayed:
		s.late = append(s.late, func() { _, _ = s.put(o) })
		return nil, errLost
	case twice:
		s.late = append(s.late, func() { _, _ = s.put(o) })
	}
	stored, err := s.put(o)
	if f == lostAfter {
		return nil, errLost
	}
	return stored, err
}

// put compares the version, checks the rules and stores, as the API server does.
func (s *server) put(o *ledger.Object) (*ledger.Object, error) {
	old := s.ledgers[o.Name]
	switch {
	case o.ResourceVersion == "" && old != nil:
		return nil, apierrors.NewAlreadyExists(ledger.Resource.GroupResource(), o.Name)
	case o.ResourceVersion != "" && old == nil:
		return nil, notFound(o.Name)
	case old != nil && (o.ResourceVersion != old.ResourceVersion || o.UID != old.UID):
		return nil, apierrors.NewConflict(ledger.Resource.GroupResource(), o.Name, errors.New("it has changed"))
	}
	for i := range o.Spec.Units {
		u := &o.Spec.Units[i]
		for _, c := range u.Allocations {
			if s.limit > 0 && c.Amount > s.limit {
				return nil, apierrors.NewInvalid(ledger.Kind.GroupKind(), o.Name, nil)
			}
		}
		if used := u.Used(); used > u.Capacity && (old == nil || used > old.Spec.Unit(u.Name).Used()) {
			return nil, apierrors.NewInvalid(ledger.Kind.GroupKind(), o.Name, nil)
		}
	}
	stored := o.DeepCopyObject().(*ledger.Object)
	stored.ResourceVersion = s.next()
	if old == nil {
		stored.UID, stored.Generation = types.UID("ledger-"+stored.ResourceVersion), 0
	}
	stored.Generation++
	s.ledgers[o.Name] = stored
	return stored.DeepCopyObject().(*ledger.Object), nil
}

func (s *server) DeleteLedger(_ context.Context, o *ledger.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.ledgers[o.Name]; old == nil || old.ResourceVersion != o.ResourceVersion {
		return apierrors.NewConflict(ledger.Resource.GroupResource(), o.Name, errors.New("it has changed"))
	}
	delete(s.ledgers, o.Name)
	return nil
}

func (s *server) LivePod(_ context.Context, _, _ string, uid types.UID) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[uid]; p != nil {
		return p.DeepCopy(), nil
	}
	return nil, nil
}

func (s *server) TouchPod(_ context.Context, _, _ string, uid types.UID) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	if p == nil {
		return nil, nil
	}
	p.ResourceVersion = s.next()
	return p.DeepCopy(), nil
}

// addPod creates a pending pod.
func (s *server) addPod(uid types.UID) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[uid] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "default", Name: "pod-" + string(uid), ResourceVersion: s.next()}}
	return s.pods[uid].DeepCopy()
}

// bind binds the pod, as a Binding does.
func (s *server) bind(uid types.UID, version, node string, annotations map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	switch {
	case p == nil:
		return errors.New("gone")
	case p.ResourceVersion != version:
		return errors.New("it has changed")
	case p.Spec.NodeName != "":
		return fmt.Errorf("bound to %s", p.Spec.NodeName)
	}
	p.Spec.NodeName, p.Annotations, p.ResourceVersion = node, annotations, s.next()
	return nil
}

// deliver delivers the writes in flight, in the order of pick.
func (s *server) deliver(pick func(n int) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.late) > 0 {
		i := pick(len(s.late))
		write := s.late[i]
		s.late = slices.Delete(s.late, i, i+1)
		write()
	}
}

// cache is what one replica has read; it lags until look is called.
type cache struct {
	server  *server
	mu      sync.Mutex
	ledgers map[string]*ledger.Object
	pods    map[types.UID]*corev1.Pod
	view    *snapshot.View
}

func newCache(s *server) *cache {
	return &cache{server: s, view: new(snapshot.View)}
}

// look updates the cache with everything.
func (c *cache) look() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledgers, c.pods = map[string]*ledger.Object{}, map[types.UID]*corev1.Pod{}
	for name, o := range c.server.ledgers {
		c.ledgers[name] = o.DeepCopyObject().(*ledger.Object)
	}
	for uid, p := range c.server.pods {
		c.pods[uid] = p.DeepCopy()
	}
}

func (c *cache) Ledger(name string) *ledger.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledgers[name]
}

func (c *cache) Ledgers() []*ledger.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*ledger.Object
	for _, o := range c.ledgers {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *ledger.Object) int { return compare(a.Name, b.Name) })
	return all
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (c *cache) PodByUID(uid types.UID) *corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[uid]
}

func (c *cache) View() *snapshot.View { return c.view }
