package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"outboard.dev/outboard/bench/baseline"
	"outboard.dev/outboard/bench/trials"
)

// serveArgument makes the command serve another extender: scheduler serve KIND SHORTLIST.
const serveArgument = "serve"

func serve(args []string) error {
	if len(args) != 2 {
		return errors.New("serve takes the kind of an extender and a shortlist")
	}
	shortlist, err := strconv.Atoi(args[1])
	if err != nil || shortlist < 0 {
		return fmt.Errorf("%q is not a shortlist", args[1])
	}
	var handler http.HandlerFunc
	switch kind := extenderKind(args[0]); {
	case kind == ideal:
		handler = baseline.Ideal(shortlist)
	case kind == idealScores && shortlist == 0:
		handler = baseline.IdealScores()
	case kind == tutorial && shortlist == 0:
		handler = baseline.Tutorial
	default:
		return fmt.Errorf("there is no extender %s with a shortlist of %d", kind, shortlist)
	}
	return trials.Serve(handler)
}
