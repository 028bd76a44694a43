package cluster

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"outboard.dev/outboard/snapshot"
)

func (c *Cluster) nodeFeed() *feed {
	machines := lru.New(maxTemplates)
	return newFeed(c, corev1.SchemeGroupVersion.WithResource("nodes"), "", c.client.CoreV1().Nodes(), store[*corev1.Node]{
		trim: snapshot.TrimNode, trimmed: snapshot.TrimmedNode,
		intern: func(node *corev1.Node) {
			key := nodeKeyOf(node)
			if like, ok := machines.Get(key); ok {
				intern(node, like.(*corev1.Node))
			}
			machines.Add(key, node)
			if before := c.View().Node(node.Name); before != nil {
				intern(node, before.Object)
			}
		},
		set:    func(node *corev1.Node) { c.SetNode(node) },
		remove: func(node *corev1.Node) { c.RemoveNode(node) },
	})
}

func (c *Cluster) podFeed() *feed {
	pods := lru.New(maxTemplates)
	running := "status.phase!=Succeeded,status.phase!=Failed"
	return newFeed(c, corev1.SchemeGroupVersion.WithResource("pods"), running, c.client.CoreV1().Pods(""), store[*corev1.Pod]{
		trim: c.trimCached, trimmed: trimmedPod,
		intern: func(pod *corev1.Pod) {
			key := podKeyOf(pod)
			if like, ok := pods.Get(key); ok {
				intern(pod, like.(*corev1.Pod))
			}
			pods.Add(key, pod)
			if before := c.PodByUID(pod.UID); before != nil {
				intern(pod, before) // cheap: parts that are shared already are not compared
			}
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
