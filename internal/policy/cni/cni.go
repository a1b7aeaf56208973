// Package cni makes Pods wait for their policies: it is asked about each attachment of a Pod to a network, by
// the CNI plugin through a Unix socket, or by a Pod network in this process before it sets a link up. It
// answers when the Gate says that the Pod's policies are in the kernel.
//
//	plugin ──► Server ──► Registry.Admit ──► file of the attachment ──► Gate.Admit ──► kernel
//	           own network ──────▲
//
// The attachments are recorded in files, since after a restart the agent must know the addresses of Pods whose
// status has none yet: the kernel has addresses, but not whose they are. There is one file for each, so that
// the plugin can remove it when a Pod ends while the agent is away. Records of another boot are ignored, since
// no sandbox survives one.
package cni

import (
	"context"
	"errors"
	"net/netip"

	"portolan.dev/portolan/internal/cni/attach"
)

// Attachment is a Pod's sandbox with its addresses on a network.
type Attachment struct {
	attach.Sandbox
	// Addresses are of either family, without zones and not mapped. There is at least one.
	Addresses []netip.Addr `json:"addresses"`
	// Devices are the names of the host's devices that the network plugin reported, one of which may be the
	// Pod's. There need not be any.
	Devices []string `json:"devices,omitempty"`
	// Device is the index of the Pod's device on the host, if that is known, by a network in this process; 0 if it is
	// not, and of recorded attachments.
	Device uint32 `json:"-"`
}

// check returns an error if something is missing.
func (a *Attachment) check() error {
	if err := a.Validate(); err != nil {
		return err
	}
	switch {
	case a.Network == "":
		return errors.New("the attachment has no network")
	case a.Namespace == "", a.Name == "":
		return errors.New("the attachment has no Pod")
	case len(a.Addresses) == 0:
		return errors.New("the attachment has no address")
	}
	return nil
}

// Gate has policies in the kernel. Its methods are called concurrently, those of one attachment one at a
// time but for Check.
type Gate interface {
	// Admit returns nil when the kernel judges all packets of the attachment's addresses by the policies of
	// its Pod. It may be called again for an attachment that it has admitted. If ctx is done it returns its
	// cause. After an error Release is called.
	Admit(ctx context.Context, a Attachment) error
	// Release says that attachments have ended. Their addresses may be other Pods' soon.
	Release(ctx context.Context, ended []Attachment) error
	// Check returns nil if the kernel judges packets as Admit says.
	Check(ctx context.Context, a Attachment) error
}

// ErrUnknown is the error of Registry.Check for an attachment that was not admitted.
var ErrUnknown = errors.New("the agent has not admitted this attachment")
