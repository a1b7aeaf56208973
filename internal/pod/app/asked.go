package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/peer"
	"portolan.dev/portolan/internal/pod/request"
)

// Asked is what `portolan explain` is asked for, as its flags and its argument are written.
type Asked struct {
	Target, From, To, Node string
	Method                 string   // of a URL; empty is GET
	Headers                []string // of a URL, as "NAME: VALUE"
	Type, Libc             string   // empty are the defaults
	Namespace              string   // of what is named without one; empty is default
}

// Told is the answer to an Asked.
type Told struct {
	*path.Explanation
	// Verdict: only what policies decide was asked for.
	Verdict bool
}

// Exit returns the exit status of the command.
func (t *Told) Exit() int {
	if t.Verdict {
		return t.ExitOfVerdict()
	}
	return t.Explanation.Exit()
}

// WriteText writes what the command prints.
func (t *Told) WriteText(style explain.Style) (string, error) {
	var b strings.Builder
	if t.Verdict {
		err := errors.Join(t.Connection.WriteVerdict(&b), t.WriteLive(&b))
		return b.String(), err
	}
	err := t.Explanation.WriteText(&b, style)
	return b.String(), err
}

// Tell explains what is asked for, from the model alone. Its errors are about the question. Cures with --live are for
// somebody who asked a server, which does not take that flag.
func (i *Inspector) Tell(ctx context.Context, a Asked) (*Told, error) {
	told, err := i.answerOf(ctx, a)
	if err != nil {
		return nil, err
	}
	e := told.Explanation
	for s := range e.Steps {
		e.Steps[s].Diagnoses = curedByCommand(e.Steps[s].Diagnoses)
	}
	if e.Name != nil {
		e.Name.Diagnoses = curedByCommand(e.Name.Diagnoses)
	}
	if e.Request != nil {
		e.Request.Diagnoses = curedByCommand(e.Request.Diagnoses)
	}
	if e.Connection != nil {
		e.Connection.Diagnoses = curedByCommand(e.Connection.Diagnoses)
	}
	for _, c := range e.Backends {
		c.Diagnoses = curedByCommand(c.Diagnoses)
	}
	return told, nil
}

// curedByCommand rewords cures with --live, which is a flag of the command, and refused with --admin.
func curedByCommand(all []explain.Diagnosis) []explain.Diagnosis {
	const command = "run the command with --live and without --admin"
	words := strings.NewReplacer("use --live to", command+", to", ", or --live", ", or "+command)
	all = slices.Clone(all) // others may have them
	for d := range all {
		all[d].Cure = words.Replace(all[d].Cure)
	}
	return all
}

// answerOf is Tell, with cures as the command prints them.
func (i *Inspector) answerOf(ctx context.Context, a Asked) (*Told, error) {
	if a.Namespace == "" {
		a.Namespace = "default"
	}
	isURL := peer.IsURL(a.Target) && a.To == ""
	switch {
	case a.Target == "":
		return nil, errors.New("the target is missing; it is a name, NAME:PORT or a URL")
	case !isURL && (a.Method != "" && a.Method != http.MethodGet || len(a.Headers) > 0):
		return nil, errors.New("a method and headers go with a URL, such as http://shop.example.com/")
	case a.To != "" && a.From != "":
		return nil, errors.New("from and to exclude each other: with to, the target is the client")
	case a.To != "":
		return i.tellVerdict(ctx, a)
	case isURL:
		return i.tellURL(ctx, a)
	}
	t, ok, err := peer.ParseTarget(a.Target)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return i.tell(ctx, a, Way{Target: t})
	}
	return i.tellName(ctx, a)
}

// tellName explains a lookup.
func (i *Inspector) tellName(ctx context.Context, a Asked) (*Told, error) {
	q, err := a.question(a.Target)
	if err != nil {
		return nil, err
	}
	if _, elsewhere := peer.ParseClient(a.From, a.Node); elsewhere {
		return nil, errors.New("clients that are no Pods need HOST:PORT; names are resolved by Pods")
	}
	if a.Node != "" {
		return nil, errors.New("a node goes with NAME:PORT")
	}
	if err := i.client(&q, a); err != nil {
		return nil, err
	}
	return &Told{Explanation: path.OfName(i.Explain(ctx, q))}, nil
}

// tellURL explains a request.
func (i *Inspector) tellURL(ctx context.Context, a Asked) (*Told, error) {
	if a.Method == "" {
		a.Method = http.MethodGet
	}
	m, err := request.ParseMessage(a.Method, a.Target, a.Headers)
	switch {
	case err != nil:
		return nil, err
	case a.From != "":
		return i.tell(ctx, a, Way{Message: &m})
	case a.Node != "":
		return nil, errors.New("a node goes with a client")
	}
	e, err := i.Path(ctx, Way{Message: &m})
	return &Told{Explanation: e}, err
}

// tellVerdict explains what policies decide of the connection of a client, which is the target, to To.
func (i *Inspector) tellVerdict(ctx context.Context, a Asked) (*Told, error) {
	to, err := peer.Parse(a.To)
	if err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	a.From = a.Target
	if !i.KnowsPolicies() {
		return nil, errors.New("the NetworkPolicies could not be read, so that nothing can be said of them")
	}
	w := Way{Target: to.Target, Service: to.Service}
	if to.Pod != nil {
		namespace := a.Namespace
		if _, elsewhere := peer.ParseClient(a.From, a.Node); !elsewhere {
			ref, err := dnsconfig.ParseReference(a.From)
			if err != nil {
				return nil, err
			}
			namespace = ref.In(a.Namespace).Namespace
		}
		subject, err := i.Subject(to.Pod.In(namespace))
		if err != nil {
			return nil, fmt.Errorf("to: %w", err)
		}
		w.To = &subject
	}
	told, err := i.tell(ctx, a, w)
	if err == nil {
		told.Verdict = true
	}
	return told, err
}

// tell explains a way, of which the client is not set yet.
func (i *Inspector) tell(ctx context.Context, a Asked, w Way) (*Told, error) {
	q, err := a.question(w.Target.Host)
	switch {
	case err != nil:
		return nil, err
	case q.Type != 0:
		return nil, errors.New("a type is not for HOST:PORT: connections use addresses")
	}
	client, elsewhere := peer.ParseClient(a.From, a.Node)
	if w.Namespace = a.Namespace; !elsewhere {
		if err := i.client(&q, a); err != nil {
			return nil, err
		}
		client.Subject, w.Namespace = q.Subject, q.Subject.Namespace
	}
	if a.Node != "" {
		if err := i.CheckNode(a.Node); err != nil {
			return nil, err
		}
	}
	w.Client, w.DNS = &client, q
	e, err := i.Path(ctx, w)
	return &Told{Explanation: e}, err
}

// question returns the question for a name, without the Pod.
func (a *Asked) question(name string) (q Question, err error) {
	if a.From == "" {
		return q, errors.New("the client is missing; name the Pod, such as shop/web-0, or node or outside")
	}
	return NewQuestion(name, a.Libc, a.Type)
}

// NewQuestion returns the question for a name, without the Pod. Empty words are the defaults: glibc, and all types of
// addresses.
func NewQuestion(name, libc, rrtype string) (q Question, err error) {
	q.Name, q.Libc = name, dnsconfig.Glibc
	if libc != "" {
		var ok bool
		if q.Libc, ok = explain.ParseResolver(libc); !ok {
			return q, fmt.Errorf("libc %q is not glibc, musl, windows or go", libc)
		}
	}
	if rrtype != "" {
		if q.Type, err = dnswire.ParseType(rrtype); err != nil {
			return q, fmt.Errorf("type: %w; use one such as A, AAAA, SRV, PTR or TXT", err)
		}
	}
	return q, nil
}

// client sets the Pod of a question, and the name servers that it has.
func (i *Inspector) client(q *Question, a Asked) error {
	ref, err := dnsconfig.ParseReference(a.From)
	if err != nil {
		return err
	}
	if q.Subject, err = i.Subject(ref.In(a.Namespace)); err != nil {
		return err
	}
	if i.ResolvConf(&q.Subject, q.Node).Policy == dnsconfig.ClusterFirstWithAutopath {
		q.Node.ClusterDNS, err = i.WebhookDNS()
	}
	return err
}

// WebhookDNS returns the name servers that the webhook writes into Pods with the policy ClusterFirstWithAutopath; none
// if the settings do not say.
func (i *Inspector) WebhookDNS() (addrs []netip.Addr, err error) {
	w := &i.settings.Webhook
	if len(w.ClusterDNS) == 0 {
		return nil, nil
	}
	for _, text := range slices.Concat(w.NodeDNS, w.ClusterDNS) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("webhook: %q is not an address, such as 10.96.0.10", text)
		}
		addrs = append(addrs, addr.Unmap())
	}
	return addrs, nil
}

// missing returns which of the kinds that an explanation needs are not read yet.
func (i *Inspector) missing(a *Asked) (kinds []cluster.Kind) {
	needs := []cluster.Kind{cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod}
	if peer.IsURL(a.Target) {
		needs = append(needs, cluster.KindIngress)
	}
	i.store.View(func(v *cluster.View) {
		for _, k := range needs {
			if !v.Loaded(k) {
				kinds = append(kinds, k)
			}
		}
	})
	return kinds
}
