package replicas

import "net/http"

// At returns a replica that the client reaches.
func At(name string, client *http.Client) Replica { return Replica{Name: name, client: client} }
