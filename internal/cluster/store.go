package cluster

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// store receives the objects of a feed: it is the ReflectorStore of a Reflector, or the handler of
// an informer. What always holds, between two calls: known are the objects for which set was called
// last, and not remove. A name is in it once: when another object has the name, remove comes first.
type store[T object] struct {
	feed *feed
	// trim changes the parts of an object. It is called once for each object, before intern: after
	// intern, an object may share its parts. Nil: the object is stored as it is.
	trim func(T)
	// trimmed is trim for an object of an informer: it changes a copy. Nil: a deep copy.
	trimmed func(T) T
	// intern makes an object share parts with others. It is called once for each object, but not for
	// those of an informer: what they are copied from would stay in memory. Nil: nothing is shared.
	intern func(T)
	set    func(T)
	remove func(T) // reads only namespace, name and UID
	known  map[identity]struct{}
}

// identity tells objects apart that have the same name one after the other.
type identity struct {
	namespace, name string
	uid             types.UID
}

func identityOf(o object) identity { return identity{o.GetNamespace(), o.GetName(), o.GetUID()} }

// follow makes the store the handler of an informer, whose owner runs it. Informers know objects by
// name: after a gap in the watch, an update may be from one object to another one of that name.
func (s store[T]) follow(informer cache.SharedIndexInformer) func(context.Context) {
	add := func(object any) {
		_ = s.change(object, func(o T) { o = s.copied(o); s.put(o) })
	}
	return func(ctx context.Context) {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: add,
			UpdateFunc: func(former, object any) {
				if former, ok := former.(T); ok && former.GetUID() != object.(T).GetUID() {
					_ = s.Delete(former)
				}
				add(object)
			},
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				_ = s.Delete(object)
			},
		})
		if err != nil {
			_ = s.feed.observe(ctx, err)
			return
		}
		if cache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
			s.feed.setRead()
		}
		<-ctx.Done()
		_ = informer.RemoveEventHandler(handler)
	}
}

// copied returns what to store of an object that others use, too.
func (s store[T]) copied(object T) T {
	switch {
	case s.trimmed != nil:
		object = s.trimmed(object)
	case s.trim != nil:
		object = object.DeepCopyObject().(T)
		s.trim(object)
	}
	return object
}

// change calls the functions that are not nil with the object.
func (s store[T]) change(object any, apply ...func(T)) error {
	typed, ok := object.(T)
	if !ok {
		return fmt.Errorf("%s: got a %T", s.feed.resource, object)
	}
	s.feed.sawEvent()
	for _, f := range apply {
		if f != nil {
			f(typed)
		}
	}
	return nil
}

func (s store[T]) put(object T) {
	s.known[identityOf(object)] = struct{}{}
	s.set(object)
}

// Add is called by the Reflector for a new object.
func (s store[T]) Add(object any) error { return s.change(object, s.trim, s.intern, s.put) }

// Update is called by the Reflector for an object that has changed.
func (s store[T]) Update(object any) error { return s.Add(object) }

// Delete is called by the Reflector for an object that is gone.
func (s store[T]) Delete(object any) error {
	return s.change(object, func(o T) {
		delete(s.known, identityOf(o))
		s.remove(o)
	})
}

// Transformer makes the Reflector prepare objects of the watch before it calls Replace.
func (s store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return object, s.change(object, s.trim, s.intern) }
}

// Replace is called by the Reflector with the complete list. The objects are prepared already, by
// the Transformer or while they were listed.
func (s store[T]) Replace(objects []any, _ string) error {
	listed := make(map[identity]struct{}, len(objects))
	for _, o := range objects {
		if err := s.change(o, func(o T) { listed[identityOf(o)] = struct{}{} }); err != nil {
			return err
		}
	}
	for id := range s.known {
		if _, ok := listed[id]; !ok {
			gone := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
			gone.SetNamespace(id.namespace)
			gone.SetName(id.name)
			gone.SetUID(id.uid)
			delete(s.known, id)
			s.remove(gone)
		}
	}
	for _, o := range objects {
		s.put(o.(T))
	}
	s.feed.setRead()
	return nil
}

// Bookmark is called by the Reflector about once a minute while nothing changes.
func (s store[T]) Bookmark(string) error {
	s.feed.sawEvent()
	return nil
}

// Resync does nothing: there is no second store to compare with.
func (s store[T]) Resync() error { return nil }
