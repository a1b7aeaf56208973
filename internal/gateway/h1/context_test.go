package h1

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestRequestContext: contexts of requests are like those of package context.
func TestRequestContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	base := context.WithValue(context.Background(), key{}, "value")
	for claim, made := range map[string]func() (context.Context, func()){
		"ours": func() (context.Context, func()) {
			c := &requestContext{Context: base}
			return c, c.cancel
		},
		"package context's": func() (context.Context, func()) { return context.WithCancel(base) },
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := made()
				var called [4]bool
				var stops []func() bool
				for i := range called {
					stops = append(stops, context.AfterFunc(ctx, func() { called[i] = true }))
				}
				child, end := context.WithTimeout(ctx, time.Hour)
				defer end()
				if ctx.Err() != nil || ctx.Value(key{}) != "value" || child.Err() != nil {
					t.Errorf("before the end: %v, %v", ctx.Err(), ctx.Value(key{}))
				}
				for _, i := range []int{0, 2} {
					if !stops[i]() || stops[i]() {
						t.Errorf("call %d was not stopped, or twice", i)
					}
				}
				cancel()
				cancel()
				<-ctx.Done()
				<-child.Done()
				synctest.Wait()
				if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(child.Err(), context.Canceled) {
					t.Errorf("after the end: %v, and of a context below %v", ctx.Err(), child.Err())
				}
				if called != [4]bool{false, true, false, true} || stops[0]() || stops[1]() {
					t.Errorf("called were %v", called)
				}
				late := false
				if stop := context.AfterFunc(ctx, func() { late = true }); stop() {
					t.Error("a call after the end was stopped")
				}
				synctest.Wait()
				if !late {
					t.Error("there was no call after the end")
				}
			})
		})
	}
}

// TestRequestContextGoroutines: what waits for the end of a request has no goroutine.
func TestRequestContextGoroutines(t *testing.T) { //nolint:paralleltest // it counts goroutines
	c := &requestContext{Context: context.Background()}
	before := runtime.NumGoroutine()
	for range 100 {
		_, end := context.WithCancel(c)
		defer end()
		context.AfterFunc(c, func() {})
	}
	if n := runtime.NumGoroutine(); n > before+50 {
		t.Errorf("%d goroutines, and %d before", n, before)
	}
	c.cancel()
}
