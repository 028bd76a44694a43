package service

import (
	"encoding/json"
	"net/http"
	"strings"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/snapshot"
)

// Inspector is implemented by a policy.Policy that shows what it knows to people and their
// tools.
type Inspector interface {
	// Inspect returns what is at a path below the profile's own, such as
	// "inspect/node-1", to be encoded as JSON; found is false when there is nothing
	// at such a path. It is pure.
	Inspect(view *snapshot.View, path string) (answer any, found bool)
}

// InspectPath is where the admin address shows what policies show, of whichever
// profile.
const InspectPath = "/inspect"

// Inspect answers what a policy shows below its profile's path, as the tools of the
// systems it stands in for expect. It returns false when there is nothing.
func (s *Service) Inspect(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	c := s.current.Load().Config
	for i := range c.Profiles {
		if path, ok := strings.CutPrefix(r.URL.Path, strings.TrimSuffix(c.Profiles[i].Path, "/")+"/"); ok && s.show(w, &c.Profiles[i], path) {
			return true
		}
	}
	return false
}

// InspectAny is Inspect for the first profile that shows something at the path.
func (s *Service) InspectAny(w http.ResponseWriter, r *http.Request) {
	c := s.current.Load().Config
	for i := range c.Profiles {
		if s.show(w, &c.Profiles[i], strings.TrimPrefix(r.URL.Path, InspectPath+"/")) {
			return
		}
	}
	http.Error(w, "no policy of the configuration shows anything here", http.StatusNotFound)
}

func (s *Service) show(w http.ResponseWriter, profile *config.Profile, path string) bool {
	if s.Cluster == nil {
		return false
	}
	for _, m := range profile.Policies {
		inspector, ok := m.Policy.(Inspector)
		if !ok {
			continue
		}
		answer, found := inspector.Inspect(s.Cluster.View(), path)
		if !found {
			continue
		}
		encoded, err := json.Marshal(answer)
		if err != nil {
			s.logger.Error("cannot encode what a policy shows", "policy", m.Name, "path", path, "error", err)
			http.Error(w, "internal error", http.StatusInternalServerError)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(encoded) // the connection is gone if this fails
		return true
	}
	return false
}
