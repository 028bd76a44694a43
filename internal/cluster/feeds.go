package cluster

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// Of objects of informers, only the names of images are shared: they are most of what is copied,
// and sharing other parts would keep objects of the informers in memory.

func (c *Cluster) nodeFeed() *feed {
	var machines templates[nodeKey, *corev1.Node]
	var images templates[string, []string]
	return newFeed(c, corev1.SchemeGroupVersion.WithResource("nodes"), "", c.client.CoreV1().Nodes(), store[*corev1.Node]{
		trim: snapshot.TrimNode, trimmed: snapshot.TrimmedNode,
		intern: func(node *corev1.Node) {
			internImages(&images, node)
			images.sweep(c.images)
			if c.options.Informers != nil {
				return
			}
			if like := machines.swap(nodeKeyOf(node), node); like != nil {
				internNode(node, like)
			}
			if before := c.View().Node(node.Name); before != nil {
				internNode(node, before.Object)
			}
			machines.sweep(c.machines)
		},
		set:    func(node *corev1.Node) { c.SetNode(node) },
		remove: func(node *corev1.Node) { c.RemoveNode(node) },
	})
}

func (c *Cluster) images(yield func(string, []string) bool) {
	for node := range c.View().All() {
		for _, image := range node.Object.Status.Images {
			if len(image.Names) > 0 && !yield(image.Names[0], image.Names) {
				return
			}
		}
	}
}

func (c *Cluster) machines(yield func(nodeKey, *corev1.Node) bool) {
	for node := range c.View().All() {
		if !yield(nodeKeyOf(node.Object), node.Object) {
			return
		}
	}
}

func (c *Cluster) podFeed() *feed {
	var pods templates[podKey, *corev1.Pod]
	running := "status.phase!=Succeeded,status.phase!=Failed"
	return newFeed(c, corev1.SchemeGroupVersion.WithResource("pods"), running, c.client.CoreV1().Pods(""), store[*corev1.Pod]{
		trim: c.trimCached, trimmed: trimmedPod,
		intern: func(pod *corev1.Pod) {
			if c.options.Informers != nil {
				return
			}
			if like := pods.swap(podKeyOf(pod), pod); like != nil {
				internPod(pod, like)
			}
			if before := c.PodByUID(pod.UID); before != nil {
				internPod(pod, before) // cheap: parts that are shared already are not compared
			}
			pods.sweep(c.podTemplates)
		},
		set: c.SetPod, remove: c.RemovePod,
	})
}

// trimCached trims a pod that the informers of another component do not keep as a whole anyway.
func (c *Cluster) trimCached(pod *corev1.Pod) {
	trimPod(pod)
	if !snapshot.ReducePod(pod) && c.PodByUID(pod.UID) == nil {
		c.warnings.Log(c.options.Logger, slog.LevelWarn, "pod",
			"a pod is so large that decisions about other pods do not see all of its annotations, labels and requests",
			"pod", pod.Namespace+"/"+pod.Name)
	}
}

func (c *Cluster) podTemplates(yield func(podKey, *corev1.Pod) bool) {
	for _, pod := range c.Pods() {
		if !yield(podKeyOf(pod), pod) {
			return
		}
	}
}

func (c *Cluster) budgetFeed() *feed {
	resource := policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	return newFeed(c, resource, "", c.client.PolicyV1().PodDisruptionBudgets(""), store[*policyv1.PodDisruptionBudget]{
		set: func(budget *policyv1.PodDisruptionBudget) {
			complete := true
			c.change(func(b *snapshot.Builder) { complete = b.SetDisruptionBudget(budget) })
			if !complete {
				c.warnings.Log(c.options.Logger, slog.LevelWarn, "budget",
					"a PodDisruptionBudget is too large: all pods of its namespace count as pods that may not be disrupted",
					"poddisruptionbudget", budget.Namespace+"/"+budget.Name)
			}
		},
		remove: func(budget *policyv1.PodDisruptionBudget) {
			c.change(func(b *snapshot.Builder) {
				b.DeleteDisruptionBudget(types.NamespacedName{Namespace: budget.Namespace, Name: budget.Name})
			})
		},
	})
}
