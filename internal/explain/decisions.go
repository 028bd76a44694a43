package explain

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"outboard.dev/outboard/internal/decision"
)

// DecisionsPath is the path of the latest decisions on the admin address.
const DecisionsPath = "/decisions"

// DefaultLatest is the default number of decisions about all pods.
const DefaultLatest = 20

// DecisionsHandler serves GET requests with the query parameters namespace and profile, of which an
// absent one selects all, and limit. The response is a list of the latest decisions, latest first.
func DecisionsHandler(log *decision.Log) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n, err := limit(q.Get("limit"), DefaultLatest)
		if err != nil {
			http.Error(w, "limit: "+err.Error(), http.StatusBadRequest)
			return
		}
		namespace, profile := q.Get("namespace"), q.Get("profile")
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(log.Latest(n, func(r *decision.Record) bool {
			return (namespace == "" || r.Pod.Namespace == namespace) && (profile == "" || r.Profile == profile)
		}))
	})
}

// FetchDecisions reads the latest decisions from a running service. query holds the parameters of
// DecisionsHandler.
func FetchDecisions(ctx context.Context, client *http.Client, admin string, query url.Values) (records []*decision.Record, err error) {
	return records, read(ctx, client, admin, DecisionsPath, query, &records)
}
