package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
)

// Admission has the policies of Pods in the kernel. *policyapp.Admission implements it.
type Admission interface {
	// Admit returns nil when the kernel judges all packets of a sandbox, behind the device with an index.
	Admit(ctx context.Context, s attach.Sandbox, addrs []netip.Addr, device uint32) error
	Release(ctx context.Context, id attach.ID) error
	Check(ctx context.Context, s attach.Sandbox, addrs []netip.Addr) error
	Ready() error
}

// links are the ends of Pods' links in the kernel, see package link.
type links interface {
	// Create returns the index of the host's end.
	Create(link.Config, link.Pod) (index int, err error)
	Up(link.Config, link.Pod) error
	Check(link.Config, link.Pod) error
	Refresh(link.Config, link.Pod) error
	Delete(host string) error
	List() ([]string, error)
}

// ports are the ports of the node that lead to Pods. *nft.Table implements it.
type ports interface {
	AddPorts(owner string, all []nft.Port) error
	DeletePorts(owner string) error
}

// sandboxes are the attachments of the node's Pods. Its methods are safe for concurrent use.
//
//	ADD ──► record and addresses ──► link, down ──► policies ──► link, up ──► hostPorts
//	DEL ──► hostPorts ──► link ──► policies ──► record and addresses
//
// Each step can be undone by what the record says, so that a process that ends between any two leaves nothing that the
// next one does not find.
type sandboxes struct {
	pool      *ipam.Pool
	links     links
	ports     ports
	admission Admission // nil without policies
	// node returns what is known of the node, or why it is not known yet.
	node func() (link.Config, error)
	// await is node, but waits for what an agent that has just started does not know yet.
	await func(context.Context) (link.Config, error)
	// forget deletes what connection tracking has of flows to ports.
	forget func([]nft.Port)
	log    *slog.Logger

	mu   sync.Mutex
	busy map[ipam.ID]*turn // guarded by mu
}

// turn has calls for one attachment wait for one another.
type turn struct {
	sync.Mutex
	users int
}

// lock waits for other calls for an attachment, and returns what lets the next one go on.
func (s *sandboxes) lock(id ipam.ID) (unlock func()) {
	s.mu.Lock()
	t := s.busy[id]
	if t == nil {
		t = new(turn)
		s.busy[id] = t
	}
	t.users++
	s.mu.Unlock()
	t.Lock()
	return func() {
		t.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.busy, id)
		}
	}
}

// handle does what a request of the CNI plugin asks for.
func (s *sandboxes) handle(ctx context.Context, r attach.Request) (*attach.Result, error) {
	switch r.Verb {
	case attach.Add:
		return s.add(ctx, r)
	case attach.Release:
		return nil, s.del(ctx, r.ID)
	case attach.Check:
		return nil, s.check(ctx, r)
	case attach.Collect:
		return nil, s.collect(ctx, r.Network, r.Valid)
	case attach.Ready:
		return nil, s.ready()
	case attach.Admit:
		return nil, errChained
	}
	return nil, fmt.Errorf("verb %q is unknown", r.Verb)
}

// errChained is the error for a plugin behind that of another network.
var errChained = &attach.RefusedError{
	Code: attach.CodeConfig,
	Text: "the agent of this node makes the network of Pods itself " +
		"(part network of node.parts): its plugin is the first of a list",
}

// data is what a record has beside addresses.
type data struct {
	Ports []attach.Port `json:"ports,omitempty"`
}

// add makes the link of a Pod. After an error nothing is left of it.
func (s *sandboxes) add(ctx context.Context, r attach.Request) (*attach.Result, error) {
	if err := r.Validate(); err != nil {
		return nil, &attach.RefusedError{Code: attach.CodeEnvironment, Text: err.Error()}
	}
	all, err := portsOf(r.Ports)
	if err != nil {
		return nil, &attach.RefusedError{Code: attach.CodeConfig, Text: err.Error()}
	}
	if s.admission != nil && (r.Namespace == "" || r.Name == "") {
		return nil, errNoPod
	}
	cfg, err := s.await(ctx)
	if err != nil {
		return nil, err
	}
	defer s.lock(idOf(r.ID))()
	record, err := s.assign(ctx, r)
	if err != nil {
		return nil, err
	}
	result, err := s.connect(ctx, r, record, cfg, all)
	if err != nil {
		if undone := s.undo(context.WithoutCancel(ctx), record); undone != nil {
			s.log.Warn("a Pod's link that was not completed is not undone", "pod", record.Pod(), "err", undone)
		}
		return nil, err
	}
	return result, nil
}

// errNoPod is the error for a sandbox of no Pod where there are policies.
var errNoPod = &attach.RefusedError{
	Code: attach.CodeEnvironment,
	Text: "CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME: " +
		"policies are for Pods of Kubernetes",
}

// assign gives a Pod its addresses. If there are none, it releases those of sandboxes that are gone.
func (s *sandboxes) assign(ctx context.Context, r attach.Request) (ipam.Record, error) {
	text, err := json.Marshal(data{r.Ports})
	if err != nil {
		return ipam.Record{}, err
	}
	wanted := ipam.Record{
		ID: idOf(r.ID), Network: r.Network, NetNS: r.NetNS, Namespace: r.Namespace, Name: r.Name, UID: r.UID,
		Device: link.HostName(r.ContainerID, r.Interface), Data: text,
	}
	record, err := s.pool.Assign(wanted)
	if _, full := errors.AsType[*ipam.ExhaustedError](err); full && s.reclaim(ctx) > 0 {
		record, err = s.pool.Assign(wanted)
	}
	return record, err
}

// reclaim ends attachments whose link is gone, as it goes with the Pod's network namespace, and returns how many.
func (s *sandboxes) reclaim(ctx context.Context) (ended int) {
	devices, err := s.links.List()
	if err != nil {
		s.log.Warn("sandboxes that are gone keep their addresses", "err", err)
		return 0
	}
	for _, record := range s.pool.All() {
		if slices.Contains(devices, record.Device) || !s.end(ctx, record) {
			continue
		}
		s.log.Info("a Pod has ended without being released", "pod", record.Pod(), "addresses", record.Addresses)
		ended++
	}
	return ended
}

// end ends an attachment unless a call for it is in progress, and reports whether it did.
func (s *sandboxes) end(ctx context.Context, record ipam.Record) bool {
	s.mu.Lock()
	_, busy := s.busy[record.ID]
	s.mu.Unlock()
	if busy {
		return false
	}
	if err := s.del(ctx, attach.ID(record.ID)); err != nil {
		s.log.Warn("an attachment that has ended is not released", "pod", record.Pod(), "err", err)
		return false
	}
	return true
}

// connect makes the link of a Pod that has its addresses.
func (s *sandboxes) connect(
	ctx context.Context, r attach.Request, record ipam.Record, cfg link.Config, all []hostPort,
) (*attach.Result, error) {
	pod := podOf(r, record)
	pod.Localnet = len(all) > 0
	index, err := s.links.Create(cfg, pod)
	if err != nil {
		return nil, codedError(err)
	}
	if s.admission != nil {
		if err := s.admission.Admit(ctx, r.Sandbox, record.Addresses, uint32(index)); err != nil {
			return nil, fmt.Errorf("it does not start without its policies: %w", err)
		}
	}
	if err := s.links.Up(cfg, pod); err != nil {
		return nil, err
	}
	if len(all) > 0 {
		ports := at(all, record.Addresses)
		if err := s.ports.AddPorts(ownerOf(record), ports); err != nil {
			return nil, err
		}
		s.forget(ports)
	}
	return resultOf(&pod, cfg), nil
}

// undo undoes everything of an attachment.
func (s *sandboxes) undo(ctx context.Context, record ipam.Record) error {
	var errs []error
	ports, err := recorded(record)
	if len(ports) > 0 {
		err = s.ports.DeletePorts(ownerOf(record))
		s.forget(ports)
	}
	errs = append(errs, err)
	errs = append(errs, s.links.Delete(record.Device))
	if s.admission != nil {
		errs = append(errs, s.admission.Release(ctx, attach.ID(record.ID)))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the record says what is left to be undone
	}
	return s.pool.Release(record.ID)
}

// del ends an attachment; of one that is unknown it deletes the link, if there is one.
func (s *sandboxes) del(ctx context.Context, id attach.ID) error {
	if err := id.Validate(); err != nil {
		return &attach.RefusedError{Code: attach.CodeEnvironment, Text: err.Error()}
	}
	defer s.lock(idOf(id))()
	record, ok := s.pool.Get(idOf(id))
	if !ok {
		record = ipam.Record{ID: idOf(id), Device: link.HostName(id.ContainerID, id.Interface)}
	}
	if err := s.undo(context.WithoutCancel(ctx), record); err != nil {
		return &attach.RefusedError{Code: attach.CodeTryAgain, Text: err.Error()}
	}
	return nil
}

// check returns nil if the kernel has everything of an attachment (CNI specification, section 4, "CHECK").
func (s *sandboxes) check(ctx context.Context, r attach.Request) error {
	defer s.lock(idOf(r.ID))()
	record, ok := s.pool.Get(idOf(r.ID))
	if !ok {
		return errors.New("the agent has not made this link")
	}
	var addrs []string
	for _, a := range record.Addresses {
		addrs = append(addrs, a.String())
	}
	if !slices.Equal(addrs, r.Addresses) {
		return fmt.Errorf("the addresses are %v, and ADD had the result %v", addrs, r.Addresses)
	}
	cfg, err := s.node()
	if err != nil {
		return err
	}
	if err := s.links.Check(cfg, podOf(r, record)); err != nil {
		return err
	}
	if s.admission == nil {
		return nil
	}
	r.Namespace, r.Name, r.UID = record.Namespace, record.Name, record.UID
	return s.admission.Check(ctx, r.Sandbox, record.Addresses)
}

// collect ends the attachments of a network that are not in valid.
func (s *sandboxes) collect(ctx context.Context, network string, valid []attach.ID) error {
	exists := make(map[ipam.ID]struct{}, len(valid))
	for _, id := range valid {
		exists[idOf(id)] = struct{}{}
	}
	var errs []error
	for _, record := range s.pool.All() {
		if _, ok := exists[record.ID]; ok || record.Network != network {
			continue
		}
		s.log.Info("a Pod has ended without being released", "pod", record.Pod(), "addresses", record.Addresses)
		errs = append(errs, s.del(ctx, attach.ID(record.ID)))
	}
	return errors.Join(errs...)
}

// ready returns why no Pod can have a link now, or nil.
func (s *sandboxes) ready() error {
	if _, err := s.node(); err != nil {
		return err
	}
	if len(s.pool.Stats()) == 0 {
		return ipam.ErrNoRanges
	}
	if s.admission != nil {
		return s.admission.Ready()
	}
	return nil
}

// refresh has the kernel have the routes to all Pods whose links are up, which go with an address of the node.
func (s *sandboxes) refresh(cfg link.Config) error {
	var errs []error
	for _, record := range s.pool.All() {
		errs = append(errs, s.links.Refresh(cfg, podOf(attach.Request{}, record)))
	}
	return errors.Join(errs...)
}

// restore brings the kernel to what the records of the process before say: links without a record end. It returns the
// ports of the node by owner.
func (s *sandboxes) restore() (map[string][]nft.Port, error) {
	devices, err := s.links.List()
	if err != nil {
		return nil, err
	}
	known, owners := make(map[string]struct{}), make(map[string][]nft.Port)
	for _, record := range s.pool.All() {
		known[record.Device] = struct{}{}
		ports, err := recorded(record)
		if err != nil {
			return nil, err
		}
		if len(ports) > 0 {
			owners[ownerOf(record)] = ports
		}
	}
	for _, device := range devices {
		if _, ok := known[device]; ok {
			continue
		}
		s.log.Info("a Pod has ended while the agent was away", "device", device)
		if err := s.links.Delete(device); err != nil {
			return nil, err
		}
	}
	return owners, nil
}

func idOf(id attach.ID) ipam.ID { return ipam.ID(id) }

// ownerOf returns how the ports of a Pod are known.
func ownerOf(r ipam.Record) string { return r.Pod() + " (" + r.String() + ")" }

// recorded returns the ports of a Pod.
func recorded(r ipam.Record) ([]nft.Port, error) {
	if len(r.Data) == 0 {
		return nil, nil
	}
	var d data
	err := json.Unmarshal(r.Data, &d)
	if err != nil {
		return nil, fmt.Errorf("record of Pod %s: %w", r.Pod(), err)
	}
	all, err := portsOf(d.Ports)
	return at(all, r.Addresses), err
}
