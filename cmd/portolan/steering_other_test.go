//go:build !linux

package main

import "testing"

func effectOfSteering(t *testing.T) { t.Skip("this system has one socket for all processors") }
