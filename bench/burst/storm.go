package burst

import (
	"time"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/synthetic"
)

// maxChanged is the highest number of Services that change. Frames for more would only
// use memory.
const maxChanged = 10_000

// encode makes two changes of each Service's first EndpointSlice, with different first
// addresses, to be sent in turn. They are made in advance because the sender shares a
// processor with the measured server.
func encode(api *fakeapi.Server, c *synthetic.Cluster) (frames []fakeapi.Frame, err error) {
	const stormIPs = "10.192.0.0"
	n := min(c.Services[synthetic.ClusterIP], maxChanged)
	for turn := range 2 {
		for i := range n {
			slice := synthetic.Change(c.Slices(synthetic.ClusterIP, i)[0], synthetic.Nth(stormIPs, 2*i+turn))
			frame, err := api.Encode(slice)
			if err != nil {
				return nil, err
			}
			frames = append(frames, frame)
		}
	}
	return frames, nil
}

// flushTime is the interval at which due changes are sent.
const flushTime = time.Millisecond

// storm sends perSecond changes a second until stop is called. stop returns the actual
// rate.
func storm(api *fakeapi.Server, frames []fakeapi.Frame, perSecond int) (stop func() (rate float64)) {
	done, ended := make(chan struct{}), make(chan float64)
	go func() {
		began := time.Now()
		ticker := time.NewTicker(flushTime)
		defer ticker.Stop()
		sent := 0
		for {
			select {
			case <-done:
				ended <- float64(sent) / time.Since(began).Seconds()
				return
			case <-ticker.C:
			}
			due := int(time.Since(began).Seconds() * float64(perSecond))
			for sent < due {
				at := sent % len(frames)
				n := min(due-sent, len(frames)-at)
				api.Send(frames[at : at+n])
				sent += n
			}
		}
	}()
	return func() float64 {
		close(done)
		return <-ended
	}
}
