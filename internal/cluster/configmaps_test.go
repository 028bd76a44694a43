package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// A ConfigMap whose data exceeds the limit counts as one without data, and the log says so.
func TestLargeConfigMap(t *testing.T) {
	var log bytes.Buffer
	source := snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "gpus-"}
	for length, kept := range map[int]bool{1 << 10: true, 1 << 20: false} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "gpus-a"}, Data: map[string]string{"gpus": strings.Repeat("1", length)}}
		trimConfigMap(m, slog.New(slog.NewTextHandler(&log, nil)), source)
		if m.Data == nil || (len(m.Data["gpus"]) == length) != kept || strings.Contains(log.String(), "kube-system/gpus-a") == kept {
			t.Errorf("of %d bytes %d are kept; log: %s", length, len(m.Data["gpus"]), log.String())
		}
		log.Reset()
	}
}
