package app

import (
	"log/slog"

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

// step removes kube-proxy's rules at its first call, and later looks whether they are back. It
// does nothing if t is nil.
func (t *takeover) step() {
	if t == nil || t.phase == contested {
		return
	}
	there, err := nft.FindKubeProxy()
	if err == nil && t.phase == waiting {
		err = there.Remove()
	}
	switch {
	case err != nil:
		if t.problem != err.Error() {
			t.problem = err.Error()
			t.log.Error("rules of kube-proxy may be in the kernel, and are looked for again", "err", err)
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
