package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accountNamespace is that of the accounts that User makes.
const accountNamespace = metav1.NamespaceSystem

// makeClients writes the administrator's kubeconfig and makes the clients.
func (c *ControlPlane) makeClients() error {
	admin, err := c.authority.client("admin", "system:masters")
	if err != nil {
		return err
	}
	user := clientcmdapi.AuthInfo{ClientCertificateData: admin.cert, ClientKeyData: admin.key}
	if err := c.writeKubeconfig(c.Kubeconfig(), user); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return err
	}
	c.config.QPS = -1
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	c.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{c.etcdURL()}})
	return err
}

// Kubeconfig is the file of an administrator.
func (c *ControlPlane) Kubeconfig() string { return c.file("admin.kubeconfig") }

// User makes a service account that may do what the rules allow, in all
// namespaces, and gives its kubeconfig file. The account's name begins with the
// one given. Its token is good for a day, and goes through proxies that end TLS.
func (c *ControlPlane) User(ctx context.Context, name string, rules ...rbacv1.PolicyRule) (kubeconfig string, err error) {
	c.users++
	name = fmt.Sprintf("%s-%d", name, c.users)
	fail := func(err error) (string, error) { return "", fmt.Errorf("user %s: %w", name, err) }
	meta := metav1.ObjectMeta{Name: name}
	accounts := c.client.CoreV1().ServiceAccounts(accountNamespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return fail(err)
	}
	if _, err := c.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		return fail(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: accountNamespace}},
	}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fail(err)
	}
	const day = 24 * 60 * 60
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(day))},
	}, metav1.CreateOptions{})
	if err != nil {
		return fail(err)
	}
	kubeconfig = c.file(name + ".kubeconfig")
	return kubeconfig, c.writeKubeconfig(kubeconfig, clientcmdapi.AuthInfo{Token: token.Status.Token})
}

func (c *ControlPlane) writeKubeconfig(file string, user clientcmdapi.AuthInfo) error {
	const name = "portolan"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + c.Address(), CertificateAuthorityData: c.authority.pem}
	config.AuthInfos[name] = &user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, file)
}

// Through copies a kubeconfig file, with another address of the API server:
// that of a proxy on loopback.
func (c *ControlPlane) Through(address, kubeconfig string) (string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + address
	}
	f, err := os.CreateTemp(c.dir, "*.kubeconfig")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), clientcmd.WriteToFile(*config, f.Name())
}

// ServingCertificate is that of the API server, for proxies that end TLS.
func (c *ControlPlane) ServingCertificate() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(c.file("server.crt"), c.file("server.key"))
}
