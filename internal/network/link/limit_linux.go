package link

import (
	"cmp"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// tick is the unit of times of schedulers, in nanoseconds (PSCHED_SHIFT of net/pkt_sched.h).
	tick = 64
	// maxQueueTime is how long a packet waits before further ones are dropped, in seconds.
	maxQueueTime = 0.025
	// header is the largest one of a frame, in octets: Ethernet with two VLAN tags, and some to spare.
	header = 64
	// defaultMTU is that of devices which are made without one.
	defaultMTU = 1500
	// minDefaultBurst is the smallest burst that is chosen, in octets: that of the kernel's largest segments.
	minDefaultBurst = 64 << 10
)

// limit limits what a Pod receives and sends. The kernel shapes only what a device sends: what the host's end
// receives from the Pod is sent through a device of kind ifb first.
func limit(h *netlink.Handle, host *netlink.Veth, pod *Pod) error {
	if pod.Ingress.Rate != 0 {
		if err := shape(h, host, pod.Ingress); err != nil {
			return err
		}
	}
	if pod.Egress.Rate == 0 {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = shapeName(pod.Host), host.MTU
	ifb := &netlink.Ifb{LinkAttrs: attrs}
	if err := h.LinkAdd(ifb); err != nil {
		return fmt.Errorf("make device %s, which limits what the Pod sends: %w", ifb.Name, err)
	}
	if _, err := refuseRouters(h, ifb); err != nil {
		return err
	}
	if err := shape(h, ifb, pod.Egress); err != nil {
		return err
	}
	if err := h.LinkSetUp(ifb); err != nil {
		return fmt.Errorf("set device %s up: %w", ifb.Name, err)
	}
	return redirect(h, host, ifb)
}

// shape has a device send no more than the limit.
func shape(h *netlink.Handle, device netlink.Link, to Bandwidth) error {
	if err := h.QdiscAdd(shaper(device.Attrs(), to)); err != nil {
		return fmt.Errorf("limit device %s to %d bits per second: %w", device.Attrs().Name, to.Rate, err)
	}
	return nil
}

// shaper returns the queue with which a device sends no more than a limit (tc-tbf(8)).
func shaper(device *netlink.LinkAttrs, limit Bandwidth) *netlink.Tbf {
	rate := max(limit.Rate/8, 1)
	burst := bucket(limit, device.MTU)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: device.Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		},
		Rate:   rate,
		Buffer: uint32(min(burst/float64(rate)*1e9, math.MaxUint32) / tick), // the kernel has nanoseconds of 32 bits
		Limit:  uint32(min(float64(rate)*maxQueueTime+burst, math.MaxUint32)),
	}
}

// describe returns the limit of a queue in words.
func describe(q *netlink.Tbf) string {
	burst := math.Round(float64(q.Buffer) * tick * float64(q.Rate) / 1e9)
	return fmt.Sprintf("%d bits per second with a burst of %.0f octets", q.Rate*8, burst)
}

// bucket returns the burst of a limit in octets: one packet at least, since others would never pass.
func bucket(of Bandwidth, mtu int) float64 {
	octets := float64(of.Burst) / 8
	if of.Burst == 0 {
		octets = max(float64(of.Rate)/8/100, minDefaultBurst)
	}
	return max(octets, float64(cmp.Or(mtu, defaultMTU)+header))
}

// redirect has all packets that a device receives sent by another one first (tc-u32(8), tc-mirred(8)).
func redirect(h *netlink.Handle, from, to netlink.Link) error {
	name, index := from.Attrs().Name, from.Attrs().Index
	ingress := netlink.MakeHandle(0xffff, 0)
	err := h.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: ingress, Parent: netlink.HANDLE_INGRESS,
	}})
	if err != nil {
		return fmt.Errorf("queue of what device %s receives: %w", name, err)
	}
	err = h.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: ingress, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	})
	if err != nil {
		return fmt.Errorf("redirect what device %s receives to %s: %w", name, to.Attrs().Name, err)
	}
	return nil
}
