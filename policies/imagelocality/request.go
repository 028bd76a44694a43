package imagelocality

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

type wantedImage struct {
	name  string // normalized
	image image
}

// request returns the images that must be on a node before all containers of the pod can start, of
// containers and of volumes, without duplicates.
func (p *imageLocality) request(pod *corev1.Pod) []wantedImage {
	names := make([]string, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	add := func(name string) {
		if name != "" {
			names = append(names, normalize(name))
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			add(containers[i].Image)
		}
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			add(image.Reference)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	wanted := make([]wantedImage, len(names))
	for i, name := range names {
		wanted[i] = wantedImage{name, p.image(name)}
	}
	return wanted
}
