package app

import (
	"context"
	"log/slog"
	"time"

	"portolan.dev/portolan/internal/proxy/nft"
)

// takeover removes kube-proxy's rules, once the kernel has those of the proxy: at no moment is
// there neither. If kube-proxy adds them again, both stay, and a warning says so.
type takeover struct {
	log     *slog.Logger
	phase   phase
	problem string // that was logged
}

// phase is how far a takeover is.
type phase uint8

const (
	waiting phase = iota // for the rules of the proxy
	removed
	contested // kube-proxy still runs
)

// lookInterval is the interval between looks whether kube-proxy's rules are back.
const lookInterval = 5 * time.Second

// run waits until the kernel has the rules of the proxy and removes those of kube-proxy, until ctx is
// done or kube-proxy has added them again.
func (t *takeover) run(ctx context.Context, programmed <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-programmed:
	}
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for t.step(); t.phase != contested; t.step() {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// step removes kube-proxy's rules at its first call, and later looks whether they are back.
func (t *takeover) step() {
	there, err := nft.FindKubeProxy()
	if err == nil && t.phase == waiting {
		err = there.Remove()
	}
	switch {
	case err != nil:
		if t.problem != err.Error() {
			t.problem = err.Error()
			t.log.Error("rules of kube-proxy may be in the kernel, and are looked for again; "+
				"kube-proxy --cleanup removes them, too", "err", err)
		}
	case t.phase == waiting:
		t.phase = removed
		if list := there.List(); len(list) > 0 {
			t.log.Info("removed the rules of kube-proxy", "removed", list)
		}
	case len(there.List()) > 0:
		t.phase = contested
		t.log.Warn("kube-proxy runs and has added its rules again, which stay; stop it and run portolan cleanup --kube-proxy",
			"rules", there.List())
	}
}
