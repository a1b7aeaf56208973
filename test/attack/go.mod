module portolan.dev/portolan/test/attack

go 1.26.0

require (
	github.com/miekg/dns v1.1.73
	golang.org/x/net v0.61.0
	golang.org/x/sys v0.49.0
	portolan.dev/portolan v0.0.0-00010101000000-000000000000
)

require (
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace portolan.dev/portolan => ../..
