package explain

import (
	"encoding/json"
	"net/http"

	"outboard.dev/outboard/internal/decision"
)

// DecisionsPath is the path of the latest decisions on the admin address.
const DecisionsPath = "/decisions"

// DefaultLatest is the default number of decisions about all pods.
const DefaultLatest = 20

// DecisionsHandler serves GET requests with the query parameters namespace, which selects all if it is
// absent, and limit. The response is a list of the latest decisions, latest first.
func DecisionsHandler(log *decision.Log) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n, err := limit(q.Get("limit"), DefaultLatest)
		if err != nil {
			http.Error(w, "limit: "+err.Error(), http.StatusBadRequest)
			return
		}
		namespace := q.Get("namespace")
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(log.Latest(n, func(r *decision.Record) bool {
			return namespace == "" || r.Pod.Namespace == namespace
		}))
	})
}
