package policytest

import (
	"reflect"
	"strings"
)

// methods fails the rule if the engine would not find a method, because only its name is that of an
// optional interface. what is a policy or a Cycle.
func (s *suite) methods(what any, optional ...reflect.Type) {
	t := reflect.TypeOf(what)
	if t == nil || s.types[t] {
		return
	}
	s.types[t] = true
	named := t // also has the methods with a pointer receiver
	if t.Kind() != reflect.Pointer {
		named = reflect.PointerTo(t)
	}
	for _, i := range optional {
		if t.Implements(i) {
			continue
		}
		var wanted []string
		has := ""
		for method := range i.Methods() {
			wanted = append(wanted, method.Name+strings.TrimPrefix(method.Type.String(), "func"))
			if _, ok := named.MethodByName(method.Name); ok {
				has = method.Name
			}
		}
		if has != "" {
			s.fail("methods", "", "%v has a method %s, but does not implement %v, so it is never called: the type %v itself must have %s", t, has, i, t, strings.Join(wanted, " and "))
		}
	}
}
