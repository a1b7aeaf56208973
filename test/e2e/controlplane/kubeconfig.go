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

// accountNamespace is that of the accounts that NewUser makes.
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

// User is an account of the cluster.
type User struct {
	Name       string
	Kubeconfig string // file
}

// NewUser makes a service account with the permissions of the rules in all namespaces.
// Its name begins with the prefix. Its token is valid for a day, and works through
// proxies that terminate TLS.
func (c *ControlPlane) NewUser(ctx context.Context, prefix string, rules ...rbacv1.PolicyRule) (*User, error) {
	c.users++
	u := &User{Name: fmt.Sprintf("%s-%d", prefix, c.users)}
	u.Kubeconfig = c.file(u.Name + ".kubeconfig")
	if err := c.bind(ctx, u.Name, rules); err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Name, err)
	}
	const day = 24 * 60 * 60
	accounts := c.client.CoreV1().ServiceAccounts(accountNamespace)
	token, err := accounts.CreateToken(ctx, u.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(day))},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Name, err)
	}
	return u, c.writeKubeconfig(u.Kubeconfig, clientcmdapi.AuthInfo{Token: token.Status.Token})
}

// bind makes an account, and a role of that name for it.
func (c *ControlPlane) bind(ctx context.Context, name string, rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	accounts := c.client.CoreV1().ServiceAccounts(accountNamespace)
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	if _, err := c.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: accountNamespace}},
	}
	_, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// Allow replaces the rules of a user.
func (c *ControlPlane) Allow(ctx context.Context, u *User, rules ...rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: u.Name}, Rules: rules}
	if _, err := c.client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("user %s: %w", u.Name, err)
	}
	return nil
}

func (c *ControlPlane) writeKubeconfig(file string, user clientcmdapi.AuthInfo) error {
	const name = "portolan"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   "https://" + c.Address(),
		CertificateAuthorityData: c.authority.pem,
	}
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

// ServingCertificate returns the API server's certificate, for proxies that terminate
// TLS.
func (c *ControlPlane) ServingCertificate() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(c.file("server.crt"), c.file("server.key"))
}
