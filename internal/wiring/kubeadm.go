package wiring

// File is a file to write.
type File struct {
	// Name is relative to the directory of all files, with slashes.
	Name string
	Data []byte
}

// KubeadmKubeconfig is the kubeconfig of kube-scheduler on nodes of kubeadm.
const KubeadmKubeconfig = "/etc/kubernetes/scheduler.conf"

// Kubeadm returns the configuration, and the directory of patches by which kubeadm starts
// kube-scheduler with it. kubeadm applies the patches to its static pod at init, join and upgrade.
func (w *Wiring) Kubeadm() []File {
	var p page
	p.comment("", "A JSON patch for the static pod of kube-scheduler that kubeadm writes. Give kubeadm this directory, at init, join and every upgrade: kubeadm init --patches DIR, kubeadm upgrade apply --patches DIR, kubeadm upgrade node --patches DIR. Or name it in kubeadm's configuration as patches.directory.")
	p.comment("", "On every control plane node, "+w.options.CertificateDir+" must have scheduler.yaml and the certificates before kubeadm runs: kube-scheduler does not start without them.")
	p.line("- op: add\n  path: /spec/containers/0/command/-\n  value: %s", Quoted("--config="+w.options.CertificateDir+"/scheduler.yaml"))
	p.line("- op: add\n  path: /spec/containers/0/volumeMounts/-\n  value:\n    name: outboard\n    mountPath: %s\n    readOnly: true", Quoted(w.options.CertificateDir))
	p.line("- op: add\n  path: /spec/volumes/-\n  value:\n    name: outboard\n    hostPath:\n      path: %s\n      type: Directory", Quoted(w.options.CertificateDir))
	return []File{
		{Name: "scheduler.yaml", Data: w.YAML()},
		{Name: "patches/kube-scheduler+json.yaml", Data: p.Bytes()},
	}
}
