//go:build !race

package endpointslices_test

const raceEnabled = false
