package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// script is an API server with prepared responses. Watches end after their last event.
type script struct {
	watches [][]watch.Event
	early   bool // watches end at once, as when the connection breaks
	asked   []string
}

func (s *script) mirror() *mirror[string] {
	return &mirror[string]{
		kind: "pods", most: 3000, kept: map[types.UID]string{"old": "old"}, version: "1",
		list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.asked = append(s.asked, "list")
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: []corev1.Pod{*pods(1, 7)[0].Object.(*corev1.Pod)}}, nil
		},
		watch: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			s.asked = append(s.asked, "watch from "+o.ResourceVersion)
			w := watch.NewFakeWithChanSize(5000, false)
			if len(s.watches) > 0 {
				for _, e := range s.watches[0] {
					w.Action(e.Type, e.Object)
				}
				s.watches = s.watches[1:]
			}
			if s.early {
				w.Stop()
			} else {
				time.AfterFunc(watchTime, w.Stop)
			}
			return w, nil
		},
		keep: func(o runtime.Object) (string, bool) { return o.(*corev1.Pod).Name, true },
	}
}

// pods returns events of new pods, with consecutive versions that start at first.
func pods(n, first int) []watch.Event {
	var events []watch.Event
	for i := range n {
		name := fmt.Sprint("p", first+i)
		events = append(events, watch.Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(first + i)}}})
	}
	return events
}

func failure(code int32, reason metav1.StatusReason) watch.Event {
	return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "it says so"}}
}

func TestMirror(t *testing.T) {
	for what, tc := range map[string]struct {
		script script
		asked  string
		kept   int
		err    string
	}{
		"nothing new":            {script{}, "watch from 1", 1, ""},
		"some news":              {script{watches: [][]watch.Event{pods(3, 2)}}, "watch from 1", 4, ""},
		"more than may be all":   {script{watches: [][]watch.Event{pods(manyEvents, 2), pods(1, 5000)}}, "watch from 1, watch from 1001", manyEvents + 2, ""},
		"too old":                {script{watches: [][]watch.Event{{failure(http.StatusGone, metav1.StatusReasonExpired)}}}, "watch from 1, list", 1, ""},
		"an error behind news":   {script{watches: [][]watch.Event{append(pods(2, 2), failure(500, metav1.StatusReasonInternalError))}}, "watch from 1", 3, "watching pods: it says so"},
		"a connection that ends": {script{watches: [][]watch.Event{pods(2, 2)}, early: true}, "watch from 1", 3, "watching pods: the connection was lost"},
		"more than is kept":      {script{watches: [][]watch.Event{pods(3000, 2)}}, "watch from 1", 3001, "watching pods: the cluster has more than 3000 pods"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := tc.script.mirror()
				err := m.catchUp(t.Context())
				if got := strings.Join(tc.script.asked, ", "); got != tc.asked {
					t.Errorf("the requests are %s, want %s", got, tc.asked)
				}
				if text := fmt.Sprint(err); (err == nil) != (tc.err == "") || err != nil && text != tc.err {
					t.Errorf("the error is %v, want %q", err, tc.err)
				}
				if len(m.kept) != tc.kept {
					t.Errorf("the mirror keeps %d, want %d", len(m.kept), tc.kept)
				}
			})
		})
	}
}

// TestMirrorGoesOn: after an error the next reading continues where the last one ended.
func TestMirrorGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script{watches: [][]watch.Event{pods(2, 2)}, early: true}
		m := s.mirror()
		if err := m.catchUp(t.Context()); !errors.Is(err, errEndedEarly) {
			t.Fatal(err)
		}
		s.early = false
		if err := m.catchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.asked, ", "); got != "watch from 1, watch from 3" {
			t.Errorf("the requests are %s", got)
		}
	})
}
