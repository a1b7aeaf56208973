package burst

import (
	"time"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/synthetic"
)

// maxChanged is how many Services change, at most: the frames of more would only
// take memory.
const maxChanged = 10_000

// encode makes two changes of each Service's first EndpointSlice, each with
// another first address, to be sent in turn: what sends them has a processor in
// common with who is measured, and shall not have to make them there.
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

// flushTime is how often what is due is sent.
const flushTime = time.Millisecond

// storm sends so many changes a second until it is told to stop, which gives how
// many it sent.
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
