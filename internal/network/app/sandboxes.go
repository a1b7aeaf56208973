package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
)

// Admission has the policies of Pods in the kernel. *policyapp.Admission implements it.
type Admission interface {
	// Admit returns nil when the kernel judges all packets of a sandbox, behind a device.
	Admit(ctx context.Context, s attach.Sandbox, addrs []netip.Addr, device attach.Device) error
	Release(ctx context.Context, id attach.ID) error
	Check(ctx context.Context, s attach.Sandbox, addrs []netip.Addr) error
	Ready() error
	// Begin says that this process makes the network of the node, and End that nothing more is asked.
	Begin()
	End()
}

// links are the ends of Pods' links in the kernel, see package link.
type links interface {
	// Create returns the index of the host's end.
	Create(link.Config, link.Pod) (index int, err error)
	Up(link.Config, link.Pod) error
	Check(link.Config, link.Pod) error
	Refresh(link.Config, link.Pod) error
	Delete(host string) error
	// List returns the host's ends that there are.
	List() ([]string, error)
	// Prune removes what is left of links that are gone.
	Prune() error
}

// ports are the ports of the node that lead to Pods. *nft.Table implements it.
type ports interface {
	AddPorts(owner string, all []nft.Port) error
	CheckPorts(owner string, all []nft.Port) error
	DeletePorts(owner string) error
}

// flows are those that connection tracking has. trackedFlows implements it.
type flows interface {
	// begin deletes those to ports that lead to a Pod from now on, and end those to a Pod that have ended.
	begin([]nft.Port)
	end([]nft.Port)
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
	flows flows
	log   *slog.Logger

	mu   sync.Mutex
	busy map[attach.ID]*turn // guarded by mu
}

// turn has calls for one attachment wait for one another.
type turn struct {
	sync.Mutex
	users int
}

// lock waits for other calls for an attachment, and returns what lets the next one go on.
func (s *sandboxes) lock(id attach.ID) (unlock func()) {
	s.mu.Lock()
	t := s.busy[id]
	if t == nil {
		t = new(turn)
		s.busy[id] = t
	}
	t.users++
	s.mu.Unlock()
	t.Lock()
	return func() { s.unlock(id, t) }
}

// tryLock is lock, if there is no other call for the attachment.
func (s *sandboxes) tryLock(id attach.ID) (unlock func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[id] != nil {
		return nil, false
	}
	t := &turn{users: 1}
	t.Lock()
	s.busy[id] = t
	return func() { s.unlock(id, t) }, true
}

func (s *sandboxes) unlock(id attach.ID, t *turn) {
	t.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(s.busy, id)
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
	Ports     []attach.Port     `json:"ports,omitempty"`
	Bandwidth *attach.Bandwidth `json:"bandwidth,omitempty"`
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
	defer s.lock(r.ID)()
	record, err := s.assign(ctx, r)
	if err != nil {
		return nil, err
	}
	result, err := s.connect(ctx, r, record, cfg, all)
	if err != nil {
		if undone := s.undo(ctx, record); undone != nil {
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
	text, err := json.Marshal(data{r.Ports, r.Bandwidth})
	if err != nil {
		return ipam.Record{}, err
	}
	wanted := ipam.Record{
		ID: r.ID, Network: r.Network, NetNS: r.NetNS, Namespace: r.Namespace, Name: r.Name, UID: r.UID,
		Device: link.HostName(r.ContainerID, r.Interface), Data: text,
	}
	record, err := s.pool.Assign(wanted)
	if _, full := errors.AsType[*ipam.ExhaustedError](err); full && s.reclaim(ctx, fewGone) > 0 {
		record, err = s.pool.Assign(wanted)
	}
	return record, err
}

// How many attachments are reclaimed: a Pod that needs an address must not wait until all of them are.
const (
	fewGone = 64
	allGone = math.MaxInt
)

// reclaim ends attachments whose link is gone, as it goes with the Pod's network namespace, until ctx is done or as
// many as wanted have ended, and returns how many have.
func (s *sandboxes) reclaim(ctx context.Context, most int) (ended int) {
	all := s.pool.All() // before the devices: an attachment that begins meanwhile is not among them
	devices, err := s.links.List()
	if err != nil {
		s.log.Warn("sandboxes that are gone keep their addresses", "err", err)
		return 0
	}
	for _, record := range all {
		if ended >= most || ctx.Err() != nil {
			break
		}
		if slices.Contains(devices, record.Device) {
			continue
		}
		switch done, err := s.end(ctx, record); {
		case err != nil:
			s.log.Warn("an attachment that has ended is not released", "pod", record.Pod(), "err", err)
		case done:
			s.log.Info("a Pod has ended without being released", "pod", record.Pod(), "addresses", record.Addresses)
			ended++
		}
	}
	return ended
}

// endAll ends what ended while the agent was away, and reclaims what is gone.
func (s *sandboxes) endAll(ctx context.Context) {
	for _, id := range s.pool.Ended() {
		if err := s.endAway(ctx, id); err != nil {
			s.log.Warn("an attachment that ended while the agent was away is not released", "attachment", id, "err", err)
		}
	}
	s.reclaim(ctx, allGone)
}

// endAway ends an attachment that ended while the agent was away, unless it has begun anew meanwhile.
func (s *sandboxes) endAway(ctx context.Context, id attach.ID) error {
	defer s.lock(id)()
	record, ok := s.pool.Get(id)
	if !ok || !s.pool.HasEnded(id) {
		return nil
	}
	return s.undo(ctx, record)
}

// end ends an attachment whose link is gone, unless a call for it is in progress or has made it anew, and reports
// whether it did.
func (s *sandboxes) end(ctx context.Context, record ipam.Record) (done bool, err error) {
	unlock, ok := s.tryLock(record.ID)
	if !ok {
		return false, nil
	}
	defer unlock()
	now, ok := s.pool.Get(record.ID)
	if !ok || !now.Created.Equal(record.Created) {
		return false, nil
	}
	devices, err := s.links.List()
	if err != nil || slices.Contains(devices, record.Device) {
		return false, err
	}
	return true, s.undo(ctx, record)
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
		device := attach.Device{Name: record.Device, Index: uint32(index)}
		if err := s.admission.Admit(ctx, r.Sandbox, record.Addresses, device); err != nil {
			return nil, fmt.Errorf("it does not start without its policies: %w", err)
		}
	}
	if err := s.links.Up(cfg, pod); err != nil {
		return nil, err
	}
	if len(all) > 0 {
		if err := s.addPorts(ctx, record, leadTo(all, record.Addresses)); err != nil {
			return nil, err
		}
	}
	return resultOf(&pod, cfg), nil
}

// addPorts has ports of the node lead to a Pod. If another one has them whose link is gone, that one ends.
func (s *sandboxes) addPorts(ctx context.Context, record ipam.Record, ports []nft.Port) error {
	err := s.ports.AddPorts(ownerOf(record), ports)
	if _, taken := errors.AsType[*nft.ConflictError](err); taken && s.reclaim(ctx, allGone) > 0 {
		err = s.ports.AddPorts(ownerOf(record), ports)
	}
	if err == nil {
		s.flows.begin(ports)
	}
	return err
}

// undoTime is how long it may take to undo everything of an attachment, less than the plugin waits.
const undoTime = 4 * time.Second

// undo undoes everything of an attachment, although ctx may be done.
func (s *sandboxes) undo(ctx context.Context, record ipam.Record) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTime, errLate)
	defer cancel()
	var errs []error
	_, ports, err := recorded(record)
	if len(ports) > 0 {
		err = s.ports.DeletePorts(ownerOf(record))
		s.flows.end(ports)
	}
	errs = append(errs, err)
	errs = append(errs, s.links.Delete(record.Device))
	if s.admission != nil {
		errs = append(errs, s.admission.Release(ctx, record.ID))
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
	defer s.lock(id)()
	record, ok := s.pool.Get(id)
	if !ok {
		record = ipam.Record{ID: id, Device: link.HostName(id.ContainerID, id.Interface)}
	}
	if err := s.undo(ctx, record); err != nil {
		return &attach.RefusedError{Code: attach.CodeTryAgain, Text: err.Error()}
	}
	return nil
}

// check returns nil if the kernel has everything of an attachment, as it was recorded, or an error that names
// everything that it lacks (CNI specification, section 2, "CHECK").
func (s *sandboxes) check(ctx context.Context, r attach.Request) error {
	defer s.lock(r.ID)()
	record, ok := s.pool.Get(r.ID)
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
	recordedData, ports, err := recorded(record)
	if err != nil {
		return err
	}
	cfg, err := s.node()
	if err != nil {
		return &attach.RefusedError{Code: attach.CodeTryAgain, Text: err.Error()}
	}
	r.Bandwidth = recordedData.Bandwidth // CHECK need not have what ADD had
	errs := []error{s.links.Check(cfg, podOf(r, record))}
	if len(ports) > 0 {
		errs = append(errs, s.ports.CheckPorts(ownerOf(record), ports))
	}
	if s.admission != nil {
		r.Namespace, r.Name, r.UID = record.Namespace, record.Name, record.UID
		errs = append(errs, s.admission.Check(ctx, r.Sandbox, record.Addresses))
	}
	return errors.Join(errs...)
}

// collect ends the attachments of a network that are not in valid.
func (s *sandboxes) collect(ctx context.Context, network string, valid []attach.ID) error {
	exists := make(map[attach.ID]struct{}, len(valid))
	for _, id := range valid {
		exists[id] = struct{}{}
	}
	var errs []error
	for _, record := range s.pool.All() {
		if _, ok := exists[record.ID]; ok || record.Network != network {
			continue
		}
		s.log.Info("a Pod has ended without being released", "pod", record.Pod(), "addresses", record.Addresses)
		errs = append(errs, s.del(ctx, record.ID))
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

// restore compares the kernel with the records of the process before, and returns the ports of the node by owner: those
// of Pods with links first, the older before the newer. A link without a record stays: it ends with its Pod's
// namespace, and if the records were lost the Pod goes on.
func (s *sandboxes) restore() (owners []nft.Owner, err error) {
	if err := s.links.Prune(); err != nil {
		return nil, err
	}
	devices, err := s.links.List()
	if err != nil {
		return nil, err
	}
	all := s.pool.All()
	has := make(map[string]int)
	for _, d := range devices {
		has[d] = 1
	}
	slices.SortStableFunc(all, func(a, b ipam.Record) int {
		return cmp.Or(has[b.Device]-has[a.Device], a.Created.Compare(b.Created))
	})
	for _, record := range all {
		devices = slices.DeleteFunc(devices, func(d string) bool { return d == record.Device })
		_, ports, err := recorded(record)
		if err != nil {
			s.log.Warn("ports of the node do not lead to a Pod", "err", err)
		}
		if len(ports) > 0 {
			owners = append(owners, nft.Owner{Name: ownerOf(record), Ports: ports})
		}
	}
	if len(devices) > 0 {
		s.log.Warn("links of Pods have no record: they stay until their network namespaces end", "devices", devices)
	}
	return owners, nil
}

// ownerOf returns how the ports of a Pod are known.
func ownerOf(r ipam.Record) string { return r.Pod() + " (" + r.String() + ")" }

// recorded returns what a record has beside addresses, and the ports as they are in the table.
func recorded(r ipam.Record) (d data, ports []nft.Port, err error) {
	if len(r.Data) == 0 {
		return d, nil, nil
	}
	if err := json.Unmarshal(r.Data, &d); err != nil {
		return d, nil, fmt.Errorf("record of Pod %s: %w", r.Pod(), err)
	}
	all, err := portsOf(d.Ports)
	return d, leadTo(all, r.Addresses), err
}
