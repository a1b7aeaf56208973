//go:build race

package endpointslices_test

const raceEnabled = true
